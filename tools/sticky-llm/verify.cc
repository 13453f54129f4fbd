#include "tools/sticky-llm/verify.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "base/text.h"
#include "engine/sampler.h"
#include "tools/sticky-llm/verdict_file.h"

namespace sticky::llm {
namespace {

// Bounds the KV cache of the label texts: each holds a copy of its claim's prompt.
constexpr std::size_t kClaimsScoredAtOnce = 8;
constexpr std::size_t kLineBytesMax = 1u << 20;
constexpr char kPromptVersion[] = "1";  // raised when the prompt below changes

struct Prompt {
  std::vector<std::int32_t> ids;
  engine::SequenceId sequence{0};
};

Result<std::vector<std::int32_t>> EncodeClaim(const Session& session,
                                              const engine::ChatTemplate& chat,
                                              const std::string& claim) {
  STICKY_ASSIGN(const std::vector<engine::TextPiece> pieces,
                chat.Render({{"system", "You check claims."},
                             {"user", "Claim: " + claim +
                                          "\nIs the claim true? Answer SUPPORTS, REFUTES or NOT "
                                          "ENOUGH INFO."}},
                            /*add_generation_prompt=*/true));
  return session.tokenizer().Encode(pieces);
}

using LabelIds = std::array<std::vector<std::int32_t>, kLabels.size()>;

Result<LabelIds> EncodeLabels(const Session& session) {
  LabelIds ids;
  for (std::size_t i = 0; i < kLabels.size(); ++i) {
    STICKY_ASSIGN(ids[i], session.tokenizer().Encode(kLabels[i], engine::Markup::kLiteral));
  }
  return ids;
}

// How many tokens all the prompts begin with, and leave more than their last token to each.
std::size_t SharedLength(std::span<const Prompt> prompts) {
  const std::vector<std::int32_t>& first = prompts[0].ids;
  std::size_t length = first.size() - 1;
  for (const Prompt& prompt : prompts) {
    length = std::min(length, prompt.ids.size() - 1);
    const auto differ = std::mismatch(
        first.begin(), first.begin() + static_cast<std::ptrdiff_t>(length), prompt.ids.begin());
    length = static_cast<std::size_t>(differ.first - first.begin());
  }
  return length;
}

// Gives each prompt its sequence. What all of them begin with is run once and shared; a row is the
// same bits however a prompt is cut, as long as each part is long (engine::Model::Forward).
// Returns how many tokens of each are run already.
Result<std::size_t> StartSequences(Session& session, std::span<Prompt> prompts) {
  engine::Model& model = session.model();
  const std::size_t shared = SharedLength(prompts);
  const auto is_long = [&](const Prompt& prompt) {
    return prompt.ids.size() - shared > engine::kShortChunkMax;
  };
  const bool share = prompts.size() > 1 && shared > engine::kShortChunkMax &&
                     std::all_of(prompts.begin(), prompts.end(), is_long);
  if (!share) {
    for (Prompt& prompt : prompts) {
      STICKY_ASSIGN(prompt.sequence, model.AddSequence(static_cast<int>(prompt.ids.size())));
    }
    return std::size_t{0};
  }
  STICKY_ASSIGN(const engine::SequenceId common, model.AddSequence(static_cast<int>(shared)));
  const engine::Chunk chunk{common, std::span(prompts[0].ids).first(shared), shared};
  STICKY_TRY(model.Forward(std::span(&chunk, 1), [](auto, auto, auto) { return Status(Ok{}); }));
  for (Prompt& prompt : prompts) {
    STICKY_ASSIGN(prompt.sequence,
                  model.ForkSequence(common, /*length=*/-1, static_cast<int>(prompt.ids.size())));
  }
  model.DropSequence(common);
  return shared;
}

// Runs all prompts as one batch; the first token of each label is scored from their last logits.
Status RunPrompts(Session& session, std::span<Prompt> prompts, const LabelIds& labels,
                  std::span<Verdict> verdicts) {
  STICKY_ASSIGN(const std::size_t done, StartSequences(session, prompts));
  std::vector<engine::Chunk> chunks;
  for (const Prompt& prompt : prompts) {
    const std::span<const std::int32_t> rest = std::span(prompt.ids).subspan(done);
    chunks.push_back({prompt.sequence, rest, rest.size() - 1});
  }
  return session.model().Forward(
      chunks, [&](std::size_t chunk, std::size_t, std::span<const float> logits) -> Status {
        for (std::size_t i = 0; i < kLabels.size(); ++i) {
          verdicts[chunk].scores[i] += engine::LogProbability(logits, labels[i][0]);
        }
        return Ok{};
      });
}

// Runs the rest of each label's text behind each prompt.
Status RunLabels(Session& session, std::span<const Prompt> prompts, const LabelIds& labels,
                 std::span<Verdict> verdicts) {
  struct Asked {
    std::size_t prompt;
    std::size_t label;
  };
  std::vector<engine::Chunk> chunks;
  std::vector<Asked> asked;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    for (std::size_t j = 0; j < labels.size(); ++j) {
      const std::size_t rest = labels[j].size() - 1;
      if (rest == 0) continue;  // its one token is scored already
      const auto capacity = static_cast<int>(prompts[i].ids.size() + rest);
      STICKY_ASSIGN(const engine::SequenceId fork,
                    session.model().ForkSequence(prompts[i].sequence, /*length=*/-1, capacity));
      chunks.push_back({fork, std::span(labels[j]).first(rest), 0});
      asked.push_back({i, j});
    }
  }
  Status done = session.model().Forward(
      chunks, [&](std::size_t chunk, std::size_t token, std::span<const float> logits) -> Status {
        const Asked& one = asked[chunk];
        verdicts[one.prompt].scores[one.label] +=
            engine::LogProbability(logits, labels[one.label][token + 1]);
        return Ok{};
      });
  for (const engine::Chunk& chunk : chunks) session.model().DropSequence(chunk.sequence);
  return done;
}

struct Input {
  std::vector<Claim> claims;
  std::int64_t bad_line_count = 0;
};

Result<Input> ReadClaims(const VerifyOptions& options,
                         const std::function<void(std::int64_t, const Error&)>& on_bad_line) {
  std::ifstream file(options.input_path);
  if (!file.is_open()) return ErrnoError("read '" + Escape(options.input_path) + "'", errno);
  Input input;
  std::set<std::int64_t> ids;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    Result<Claim> claim = line.size() > kLineBytesMax
                              ? Error{Code::kCorrupt, Format("read a line of JSON: it has %zu "
                                                             "bytes, at most %zu are read",
                                                             line.size(), kLineBytesMax)}
                              : ParseClaim(line);
    if (claim.ok() && !ids.insert(claim.value().id).second) {
      claim = Error{Code::kCorrupt, Format("read a line of JSON: id %lld stands twice",
                                           static_cast<long long>(claim.value().id))};
    }
    if (!claim.ok()) {
      if (options.strict) {
        return Error{Code::kCorrupt,
                     Format("%s:%lld: %s", Escape(options.input_path).c_str(),
                            static_cast<long long>(number), claim.error().message.c_str())};
      }
      ++input.bad_line_count;
      on_bad_line(number, claim.error());
      continue;
    }
    input.claims.push_back(std::move(claim).value());
    const auto count = static_cast<std::int64_t>(input.claims.size());
    if (options.limit > 0 && count >= options.limit) break;
  }
  return input;
}

void Count(const Verdict& verdict, VerifySummary& summary) {
  ++summary.claim_count;
  if (!verdict.label) return;
  ++summary.labelled_count;
  summary.correct_count += verdict.best() == *verdict.label ? 1 : 0;
}

// A run does the claims in their order: what is done must be the input's first claims.
Status CheckEarlier(std::span<const Verdict> earlier, std::span<const Claim> claims,
                    const std::string& output_path) {
  for (std::size_t i = 0; i < earlier.size(); ++i) {
    const Verdict& verdict = earlier[i];
    if (i < claims.size() && verdict.id == claims[i].id && verdict.claim == claims[i].text &&
        verdict.label == claims[i].label) {
      continue;
    }
    return Error{Code::kInvalidArgument,
                 Format("resume '%s.partial': line %zu is the verdict on claim %lld, '%s', and "
                        "claim number %zu of the input is another; the input has changed since, or "
                        "the file: remove the file to start over",
                        Escape(output_path).c_str(), i + 2, static_cast<long long>(verdict.id),
                        Escape(verdict.claim.substr(0, 100)).c_str(), i + 1)};
  }
  return Ok{};
}

Result<VerdictFile> OpenVerdicts(const std::string& output_path, const std::string& belongs_to,
                                 std::span<const Claim> claims) {
  STICKY_ASSIGN(VerdictFile file, VerdictFile::Open(output_path, belongs_to));
  STICKY_TRY(CheckEarlier(file.earlier(), claims, output_path));
  return file;
}

}  // namespace

Result<std::vector<Verdict>> Judge(Session& session, std::span<const Claim> claims, Clock& clock) {
  STICKY_ASSIGN(const engine::ChatTemplate chat, session.Chat());
  STICKY_ASSIGN(const LabelIds labels, EncodeLabels(session));
  std::vector<Prompt> prompts(claims.size());
  std::vector<Verdict> verdicts(claims.size());
  for (std::size_t i = 0; i < claims.size(); ++i) {
    STICKY_ASSIGN(prompts[i].ids, EncodeClaim(session, chat, claims[i].text));
    verdicts[i] = {claims[i].id, claims[i].text, claims[i].label, {}};
  }
  STICKY_TRY(RunPrompts(session, prompts, labels, verdicts));
  clock.FirstToken();
  for (std::size_t at = 0; at < claims.size(); at += kClaimsScoredAtOnce) {
    const std::size_t count = std::min(kClaimsScoredAtOnce, claims.size() - at);
    STICKY_TRY(RunLabels(session, std::span(prompts).subspan(at, count), labels,
                         std::span(verdicts).subspan(at, count)));
    for (const Prompt& prompt : std::span(prompts).subspan(at, count)) {
      session.model().DropSequence(prompt.sequence);
    }
  }
  return verdicts;
}

client::Outcome<VerifySummary> Verify(
    Session& session, const VerifyOptions& options, Clock& clock,
    const std::function<void(std::int64_t, const Error&)>& on_bad_line,
    const std::function<void(const VerifySummary&)>& on_progress) {
  STICKY_STEP(const Input input, client::During(Stage::kModel, ReadClaims(options, on_bad_line)));
  // The same claims under the same weights give the same verdicts; anything else must not be mixed.
  const std::string belongs_to =
      Format("{\"verdicts_for\": \"%s\", \"content_digest\": \"%s\", \"prompt\": %s}",
             Escape(options.input_path).c_str(), ToHex(session.source().content_digest()).c_str(),
             kPromptVersion);
  STICKY_STEP(
      VerdictFile file,
      client::During(Stage::kOutput, OpenVerdicts(options.output_path, belongs_to, input.claims)));
  VerifySummary summary;
  summary.bad_line_count = input.bad_line_count;
  for (const Verdict& verdict : file.earlier()) Count(verdict, summary);
  summary.resumed_count = summary.claim_count;
  std::vector<Claim> batch;
  for (std::size_t i = file.earlier().size(); i <= input.claims.size(); ++i) {
    const bool last = i == input.claims.size();
    if (!last) batch.push_back(input.claims[i]);
    if (batch.empty() || (!last && batch.size() < static_cast<std::size_t>(options.batch)))
      continue;
    if (interrupted_by != 0) {
      summary.interrupted = true;
      return summary;
    }
    STICKY_STEP(const std::vector<Verdict> verdicts,
                client::During(Stage::kModel, Judge(session, batch, clock)));
    std::string lines;
    for (const Verdict& verdict : verdicts) {
      lines += FormatVerdict(verdict) + "\n";
      Count(verdict, summary);
    }
    const Status added = file.Append(lines);
    if (!added.ok()) return client::Failed{Stage::kOutput, added.error()};
    batch.clear();
    on_progress(summary);
  }
  const Status finished = file.Finish();
  if (!finished.ok()) return client::Failed{Stage::kOutput, finished.error()};
  return summary;
}

}  // namespace sticky::llm
