#include "weights/split_pattern.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/text.h"

namespace sticky::weights {
namespace {

constexpr std::uint32_t kRepeatMax = 1000;  // both libraries allow more
constexpr std::size_t kGroupDepthMax = 64;  // PCRE2: 250

// Properties that are one thing to both. Not scripts: PCRE2 means Script_Extensions.
constexpr std::string_view kCategories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cn", "Co", "Cs"};

// Two letters that Oniguruma, without regard to case, also finds as one: U+00DF, U+FB00 and on.
// Source: Unicode's CaseFolding.txt, status F, those that are all ASCII.
constexpr std::string_view kFoldedPairs[] = {"ss", "ff", "fi", "fl", "st"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsAscii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// One character, or one escape that stands for a kind of characters.
struct Atom {
  std::string pcre2;
  std::optional<std::uint32_t> character;  // its code point
};

class Reader {
 public:
  explicit Reader(std::string_view pattern) : in_(pattern) {}
  Result<std::string> Read();

 private:
  enum class Before { kNothing, kItem, kQuantifier };
  struct Group {
    bool caseless_outside;
    bool looks_ahead;
  };

  bool Ended() const { return at_ >= in_.size(); }
  bool Next(std::string_view text) const { return in_.substr(at_, text.size()) == text; }
  Error Refuse(const std::string& what) const;
  Error RefuseEscape() const;
  Error RefuseCaseless() const { return Refuse("a character past ASCII without regard to case"); }

  Status ReadItem();
  Status OpenGroup();
  Status CloseGroup();
  Status ReadSet();
  Result<Atom> ReadMember();
  Status ReadQuantifier();
  Result<bool> ReadInterval();

  Result<Atom> ReadAtom();
  Result<Atom> ReadLiteral();
  Result<Atom> ReadProperty();
  Result<Atom> ReadCodePoint();
  Status NoteCaselessLetter(const Atom& atom);

  const std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
  std::vector<Group> groups_;
  bool caseless_ = false;
  Before before_ = Before::kNothing;
  char caseless_letter_ = 0;  // the one just before, lower case
};

Error Reader::Refuse(const std::string& what) const {
  return Error{Code::kInvalidArgument,
               Format("split pattern '%s': at byte %zu: %s is not supported", Escape(in_).c_str(),
                      at_, what.c_str())};
}

Error Reader::RefuseEscape() const {
  return Refuse("'" + Escape(in_.substr(at_, 2)) +
                "'; of escapes by letter \\d \\D \\s \\S \\p \\P "
                "\\t \\n \\r \\f \\x{...} \\u.... are known; another one");
}

Result<std::string> Reader::Read() {
  while (!Ended()) STICKY_TRY(ReadItem());
  if (!groups_.empty()) return Refuse("a group that does not end");
  return std::move(out_);
}

Status Reader::ReadItem() {
  switch (in_[at_]) {
    case '(':
      return OpenGroup();
    case ')':
      return CloseGroup();
    case '[':
      return ReadSet();
    case '*':
    case '+':
    case '?':
    case '{':
      return ReadQuantifier();
    case '^':
    case '$':
      return Refuse(std::string("the anchor '") + in_[at_] + "' (of lines in Oniguruma)");
    case '|':
      out_ += '|';
      ++at_;
      before_ = Before::kNothing;
      caseless_letter_ = 0;
      return Ok{};
    case '.':
      out_ += R"([^\n])";  // whatever a build of PCRE2 takes for a line's end
      ++at_;
      before_ = Before::kItem;
      caseless_letter_ = 0;
      return Ok{};
    default:
      break;
  }
  STICKY_ASSIGN(const Atom atom, ReadAtom());
  STICKY_TRY(NoteCaselessLetter(atom));
  out_ += atom.pcre2;
  before_ = Before::kItem;
  return Ok{};
}

Status Reader::OpenGroup() {
  if (groups_.size() >= kGroupDepthMax) {
    return Refuse(Format("a group more than %zu deep", kGroupDepthMax));
  }
  Group group{caseless_, false};
  std::string_view opening = "(";
  if (Next("(*")) return Refuse("'(*'");
  if (Next("(?")) {
    constexpr std::string_view kOpenings[] = {"(?:", "(?=", "(?!", "(?>", "(?i:"};
    const auto* const known = std::find_if(std::begin(kOpenings), std::end(kOpenings),
                                           [&](const std::string_view text) { return Next(text); });
    if (known == std::end(kOpenings)) {
      return Refuse("the group '" + Escape(in_.substr(at_, 4)) +
                    "' (known: '(', '(?:', '(?=', '(?!', '(?>', '(?i:')");
    }
    opening = *known;
    group.looks_ahead = opening == "(?=" || opening == "(?!";
    caseless_ = caseless_ || opening == "(?i:";
  }
  groups_.push_back(group);
  out_ += opening;
  at_ += opening.size();
  before_ = Before::kNothing;
  return Ok{};
}

Status Reader::CloseGroup() {
  if (groups_.empty()) return Refuse("')' without a group");
  caseless_ = groups_.back().caseless_outside;
  // Oniguruma takes no quantifier after a lookahead, PCRE2 gives it a meaning of its own.
  before_ = groups_.back().looks_ahead ? Before::kNothing : Before::kItem;
  groups_.pop_back();
  out_ += ')';
  ++at_;
  return Ok{};
}

// [...]. Oniguruma nests and intersects sets, where PCRE2 sees ordinary characters.
Status Reader::ReadSet() {
  out_ += '[';
  ++at_;
  if (Next("^")) {
    out_ += '^';
    ++at_;
  }
  for (bool first = true; first || !Next("]"); first = false) {
    if (Ended()) return Refuse("a set that does not end");
    if (Next("-")) {
      if (!first && !Next("-]")) return Refuse("'-' within a set that makes no range");
      out_ += "\\-";
      ++at_;
      continue;
    }
    STICKY_ASSIGN(const Atom low, ReadMember());
    out_ += low.pcre2;
    if (!Next("-") || Next("-]")) continue;
    ++at_;
    if (Ended() || Next("-")) return Refuse("a range that does not end");
    STICKY_ASSIGN(const Atom high, ReadMember());
    if (!low.character || !high.character || *low.character > *high.character) {
      return Refuse("a range that is not from one character to a later one");
    }
    out_ += "-" + high.pcre2;
  }
  out_ += ']';
  ++at_;
  before_ = Before::kItem;
  caseless_letter_ = 0;
  return Ok{};
}

Result<Atom> Reader::ReadMember() {
  if (Next("[:")) return Refuse("a POSIX bracket '[:' (Unicode's properties in Oniguruma alone)");
  if (Next("[")) return Refuse("a set within a set ('[')");
  if (Next("&&")) return Refuse("an intersection of sets ('&&')");
  if (Next("]")) return Refuse("an empty set, or ']' as its first character,");
  STICKY_ASSIGN(Atom atom, ReadAtom());
  if (caseless_ && atom.character.value_or(0) >= 0x80) return RefuseCaseless();
  return atom;
}

Status Reader::ReadQuantifier() {
  if (before_ != Before::kItem) {
    return Refuse(std::string("the quantifier '") + in_[at_] +
                  "' after nothing, a lookahead or another quantifier");
  }
  const std::size_t begin = at_;
  const bool interval = in_[at_] == '{';
  bool exact = false;
  if (interval) {
    STICKY_ASSIGN(exact, ReadInterval());
  } else {
    ++at_;
  }
  if (exact && Next("?")) return Refuse("'{n}?' (at most once in Oniguruma)");
  if (interval && Next("+")) return Refuse("'{n,m}+' (more of the same in Oniguruma)");
  if (Next("?") || Next("+")) ++at_;
  out_ += in_.substr(begin, at_ - begin);
  before_ = Before::kQuantifier;
  caseless_letter_ = 0;
  return Ok{};
}

// {n}, {n,} or {n,m}; true when it is {n}.
Result<bool> Reader::ReadInterval() {
  const std::string_view rest = in_.substr(at_);
  const std::size_t end = rest.find('}');
  const std::string_view inner = end == std::string_view::npos ? "" : rest.substr(1, end - 1);
  const auto fail = [&] {
    return Refuse(
        Format("'{' that is none of {n}, {n,} and {n,m} with n and m up to %u", kRepeatMax));
  };
  const std::size_t comma = std::min(inner.find(','), inner.size());
  const auto number = [](std::string_view digits) -> std::optional<std::uint32_t> {
    if (digits.empty() || digits.size() > 4) return std::nullopt;
    std::uint32_t value = 0;
    for (const char c : digits) {
      if (!IsDigit(c)) return std::nullopt;
      value = value * 10 + static_cast<std::uint32_t>(c - '0');
    }
    return value;
  };
  const auto low = number(inner.substr(0, comma));
  const bool open = comma + 1 == inner.size();  // {n,}
  const auto high = comma < inner.size() && !open ? number(inner.substr(comma + 1)) : low;
  if (!low || !high || *low > *high || *high > kRepeatMax) return fail();
  at_ += end + 1;
  return comma == inner.size();
}

// A character, or an escape with the same meaning within sets and outside.
Result<Atom> Reader::ReadAtom() {
  if (in_[at_] != '\\') return ReadLiteral();
  if (at_ + 1 >= in_.size()) return Refuse("'\\' at the end");
  const char c = in_[at_ + 1];
  Atom atom;
  switch (c) {
    case 'p':
    case 'P':
      return ReadProperty();
    case 'x':
    case 'u':
      return ReadCodePoint();
    case 's':  // PCRE2's own \s has U+180E too, which is no space since Unicode 6.3
      atom.pcre2 = R"(\p{White_Space})";
      break;
    case 'S':
      atom.pcre2 = R"(\P{White_Space})";
      break;
    case 'd':
    case 'D':
      atom.pcre2 = in_.substr(at_, 2);
      break;
    case 't':
    case 'n':
    case 'r':
    case 'f':
      atom = {std::string(in_.substr(at_, 2)), c == 't'   ? 0x09u
                                               : c == 'n' ? 0x0Au
                                               : c == 'r' ? 0x0Du
                                                          : 0x0Cu};
      break;
    default:
      if (IsLetter(c) || IsDigit(c) || !IsAscii(c) || c < ' ') return RefuseEscape();
      atom = {std::string(in_.substr(at_, 2)), static_cast<unsigned char>(c)};
  }
  at_ += 2;
  return atom;
}

Result<Atom> Reader::ReadLiteral() {
  const int size = Utf8CharacterBytes(in_.substr(at_));
  if (size <= 0) return Refuse("a byte that is not UTF-8");
  const std::string_view bytes = in_.substr(at_, static_cast<std::size_t>(size));
  constexpr unsigned char kLead[] = {0, 0x7F, 0x1F, 0x0F, 0x07};  // its bits of the code point
  std::uint32_t value = static_cast<unsigned char>(bytes[0]) & kLead[size];
  for (const char c : bytes.substr(1)) {
    value = value << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  }
  at_ += bytes.size();
  return Atom{std::string(bytes), value};
}

// \p{Lu}, \P{Lu}, \p{^Lu}
Result<Atom> Reader::ReadProperty() {
  const std::size_t end = in_.find('}', at_);
  const bool braced = at_ + 2 < in_.size() && in_[at_ + 2] == '{' && end != std::string_view::npos;
  std::string_view name = braced ? in_.substr(at_ + 3, end - at_ - 3) : "";
  if (!name.empty() && name[0] == '^') name.remove_prefix(1);
  if (std::find(std::begin(kCategories), std::end(kCategories), name) == std::end(kCategories)) {
    return Refuse("the property '" + Escape(braced ? name : in_.substr(at_, 3)) +
                  "' (known: general categories, as \\p{L} and \\p{Lu})");
  }
  if (caseless_) return Refuse("a property without regard to case");
  Atom atom{std::string(in_.substr(at_, end + 1 - at_)), std::nullopt};
  at_ = end + 1;
  return atom;
}

// \xHH below 80 (above, it is a byte and no character in Oniguruma), \x{H...} or \uHHHH
Result<Atom> Reader::ReadCodePoint() {
  const bool braced = Next("\\x{");
  const std::size_t begin = at_ + (braced ? 3 : 2);
  const std::size_t size =
      braced ? std::min(in_.find('}', begin), in_.size()) - begin : (Next("\\u") ? 4 : 2);
  std::uint32_t value = 0;
  bool valid = size >= 1 && size <= 6 && begin + size + (braced ? 1 : 0) <= in_.size();
  for (std::size_t i = begin; valid && i < begin + size; ++i) {
    const char lower = static_cast<char>(in_[i] | 0x20);
    valid = IsDigit(in_[i]) || (IsLetter(in_[i]) && lower <= 'f');
    value =
        value << 4 | static_cast<std::uint32_t>(IsDigit(in_[i]) ? in_[i] - '0' : lower - 'a' + 10);
  }
  valid = valid && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
  if (!valid || (!braced && size == 2 && value >= 0x80)) {
    return Refuse("'" + Escape(in_.substr(at_, 4)) +
                  "' that is no code point (known: \\x00 to \\x7f, \\x{...}, \\uHHHH)");
  }
  at_ = begin + size + (braced ? 1 : 0);
  return Atom{Format("\\x{%x}", value), value};
}

// Without regard to case the libraries agree on single ASCII letters.
Status Reader::NoteCaselessLetter(const Atom& atom) {
  const char before = caseless_letter_;
  caseless_letter_ = 0;
  if (!caseless_ || !atom.character) return Ok{};
  if (*atom.character >= 0x80) return RefuseCaseless();
  caseless_letter_ = static_cast<char>(*atom.character | (*atom.character >= 'A' ? 0x20u : 0u));
  const std::string pair{before, caseless_letter_};
  if (std::find(std::begin(kFoldedPairs), std::end(kFoldedPairs), pair) != std::end(kFoldedPairs)) {
    return Refuse("'" + pair + "' without regard to case");
  }
  return Ok{};
}

}  // namespace

Result<std::string> SplitPattern(std::string_view oniguruma) { return Reader(oniguruma).Read(); }

std::string LiteralPattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    // PCRE2 takes a backslash before whatever is neither letter nor digit for a quotation of it.
    if (IsAscii(c) && !IsLetter(c) && !IsDigit(c) && c > ' ') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace sticky::weights
