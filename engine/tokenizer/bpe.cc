#include "engine/tokenizer/bpe.h"

#include <optional>
#include <queue>
#include <tuple>

#include "base/text.h"

namespace sticky::engine {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

struct Symbol {
  std::uint32_t id;
  std::size_t previous, next;  // kNone at the ends
  bool gone = false;           // merged into the one before it
};

// A merge that was possible when it was queued; stale when its ids have changed since.
struct Candidate {
  std::uint32_t rank;
  std::size_t left;
  std::uint32_t left_id, right_id, result;
  bool operator>(const Candidate& other) const {
    return std::tie(rank, left) > std::tie(other.rank, other.left);
  }
};

class Merger {
 public:
  Merger(const weights::Vocabulary& vocabulary, std::vector<Symbol>& symbols)
      : vocabulary_(vocabulary), symbols_(symbols) {
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) Consider(i);
  }

  void Run() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      Symbol& left = symbols_[best.left];
      if (left.gone || left.id != best.left_id || left.next == kNone) continue;
      Symbol& right = symbols_[left.next];
      if (right.id != best.right_id) continue;
      left.id = best.result;
      right.gone = true;
      left.next = right.next;
      if (left.next != kNone) symbols_[left.next].previous = best.left;
      if (left.previous != kNone) Consider(left.previous);
      Consider(best.left);
    }
  }

 private:
  void Consider(std::size_t left) {
    const std::size_t right = symbols_[left].next;
    if (right == kNone) return;
    const auto merge = vocabulary_.FindMerge(symbols_[left].id, symbols_[right].id);
    if (!merge) return;
    queue_.push({merge->rank, left, symbols_[left].id, symbols_[right].id, merge->result});
  }

  const weights::Vocabulary& vocabulary_;
  std::vector<Symbol>& symbols_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
};

}  // namespace

Status EncodePiece(const weights::Vocabulary& vocabulary, std::string_view piece,
                   std::vector<std::int32_t>& ids) {
  if (vocabulary.ignore_merges()) {
    if (const auto whole = vocabulary.Find(piece)) {
      ids.push_back(static_cast<std::int32_t>(*whole));
      return Ok{};
    }
  }
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const auto id = vocabulary.Find(piece.substr(i, 1));
    if (!id) {
      return Error{Code::kInvalidArgument,
                   Format("encode a text: the vocabulary has no token for byte 0x%02x",
                          static_cast<unsigned char>(piece[i]))};
    }
    symbols.push_back({*id, i == 0 ? kNone : i - 1, i + 1 < piece.size() ? i + 1 : kNone});
  }
  Merger(vocabulary, symbols).Run();
  for (const Symbol& symbol : symbols) {
    if (!symbol.gone) ids.push_back(static_cast<std::int32_t>(symbol.id));
  }
  return Ok{};
}

}  // namespace sticky::engine
