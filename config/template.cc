#include "config/template.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include <pwd.h>
#include <unistd.h>

#include "base/text.h"
#include "config/yaml_reader.h"

namespace sticky::config {
namespace {

std::optional<std::string> HomeFolder() {
  if (const char* const home = std::getenv("HOME"); home != nullptr && home[0] == '/') return home;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): whoever reads a template has one thread.
  const passwd* const entry = ::getpwuid(::geteuid());
  if (entry == nullptr || entry->pw_dir == nullptr) return std::nullopt;
  return entry->pw_dir;
}

// Expands a leading ~/ and every ${NAME}. Errors: the text that could not be expanded.
Result<std::string> ExpandPath(const std::string& text) {
  std::string out;
  std::size_t at = 0;
  if (text.starts_with('~') && text.size() > 1 && text[1] != '/') {
    return Error{Code::kInvalidArgument,
                 "'" + Escape(text) +
                     "': of home folders only your own (~/) is known; write the "
                     "whole path, or ./~ for a name that begins so"};
  }
  if (text.starts_with('~')) {
    const std::optional<std::string> home = HomeFolder();
    if (!home) return Error{Code::kInvalidArgument, "'~': there is no home folder"};
    out = *home;
    at = 1;
  }
  while (at < text.size()) {
    if (text.compare(at, 2, "${") != 0) {
      out += text[at++];
      continue;
    }
    const std::size_t end = text.find('}', at);
    if (end == std::string::npos) {
      return Error{Code::kInvalidArgument, "'" + Escape(text) + "': '${' without '}'"};
    }
    const std::string name = text.substr(at + 2, end - at - 2);
    const char* const value = std::getenv(name.c_str());
    if (name.empty() || value == nullptr) {
      return Error{Code::kInvalidArgument,
                   "'" + Escape(text) + "': variable '" + Escape(name) + "' is not set"};
    }
    out += value;
    at = end + 1;
  }
  return out;
}

// Without the parts of a path that change nothing: "./" and doubled slashes. Links keep "a/.." from
// being one of them.
std::string Tidy(const std::string& path) {
  std::string out;
  std::size_t at = 0;
  while (at < path.size()) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    if (!part.empty() && part != ".") out += "/" + part;
    at = end + 1;
  }
  return out.empty() ? "/" : out;
}

// The rule for names of states, as the wire protocol has it: they stand in commands, logs and
// environment variables, so nothing in them means anything to a shell or a terminal.
bool IsStateName(const std::string& name) {
  constexpr std::size_t kNameBytesMax = 128;
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !name.empty() && name.size() <= kNameBytesMax && is_word(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) {
           return is_word(c) || c == '.' || c == '_' || c == '-' || c == '+';
         });
}

Result<std::string> ReadName(const YamlMapping& top) {
  STICKY_ASSIGN(const auto name, top.Text("name"));
  if (!name || name->empty()) return top.At("name", "'name' is missing: what the state is called");
  if (!IsStateName(*name)) {
    return top.At("name",
                  "'name' wants 1 to 128 of A-Z a-z 0-9 . _ - +, a letter or digit first, "
                  "found '" +
                      Escape(*name) + "'");
  }
  return *name;
}

Result<DtypeChoice> ReadDtype(const YamlMapping& top) {
  STICKY_ASSIGN(const auto text, top.Text("dtype"));
  if (!text) return DtypeChoice::kAuto;
  for (int i = 0; i < kDtypeChoiceCount; ++i) {
    const auto choice = static_cast<DtypeChoice>(i);
    if (*text == Name(choice)) return choice;
  }
  return top.At("dtype", "'dtype' wants auto, bf16, f16 or f32, found '" + Escape(*text) + "'");
}

Result<std::string> ReadSource(const YamlMapping& top, const std::string& directory) {
  STICKY_ASSIGN(const YamlMapping source, top.Mapping("source"));
  STICKY_TRY(source.OnlyKeys({"path"}));
  STICKY_ASSIGN(const auto text, source.Text("path"));
  if (!text || text->empty()) {
    return top.At("source", "'source.path' is missing: the model's file or folder");
  }
  const Result<std::string> path = ExpandPath(*text);
  if (!path.ok()) return source.At("path", "'source.path': " + path.error().message);
  return Tidy(path.value().starts_with('/') ? path.value() : directory + "/" + path.value());
}

// One line a fact, whatever the spelling was: two templates that mean the same have one digest.
// What only says how long the state stays is no part of it.
std::string Canonical(const Template& made) {
  return "name=" + made.name + "\nsource.path=" + std::to_string(made.source_path.size()) + ":" +
         made.source_path + "\ndevice=" + made.device + "\ndtype=" + Name(made.dtype) +
         "\nmemory.huge_pages=" + (made.huge_pages ? "true" : "false") + "\n";
}

}  // namespace

Result<Template> ParseTemplate(std::string_view text, const std::string& directory,
                               const std::string& file_name) {
  STICKY_ASSIGN(const YamlMapping top, YamlMapping::Parse(text, file_name));
  STICKY_TRY(top.OnlyKeys({"name", "source", "device", "dtype", "lifetime", "memory"}));
  Template made;

  STICKY_ASSIGN(made.name, ReadName(top));
  STICKY_ASSIGN(made.source_path, ReadSource(top, directory));
  STICKY_ASSIGN(made.dtype, ReadDtype(top));
  STICKY_ASSIGN(const auto device, top.Text("device"));
  if (device && *device != "host") {
    return top.At("device", "'device' is '" + Escape(*device) + "'; this version knows host");
  }

  STICKY_ASSIGN(const YamlMapping lifetime, top.Mapping("lifetime"));
  STICKY_TRY(lifetime.OnlyKeys({"pin"}));
  STICKY_ASSIGN(const auto pin, lifetime.Bool("pin"));
  made.pin = pin.value_or(false);

  STICKY_ASSIGN(const YamlMapping memory, top.Mapping("memory"));
  STICKY_TRY(memory.OnlyKeys({"huge_pages"}));
  STICKY_ASSIGN(const auto huge_pages, memory.Bool("huge_pages"));
  made.huge_pages = huge_pages.value_or(false);

  made.canonical = Canonical(made);
  return made;
}

Result<Template> LoadTemplate(const std::string& path) {
  STICKY_ASSIGN(const std::string text, ReadSmallFile(path));
  char* const real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return ErrnoError("find '" + Escape(path) + "'", errno);
  const std::string whole(real);
  std::free(real);
  return ParseTemplate(text, whole.substr(0, whole.rfind('/')), path);
}

}  // namespace sticky::config
