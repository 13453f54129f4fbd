// The command `template check`: all that a load would find out before it copies, without a daemon.

#include <utility>

#include "base/cpu_features.h"
#include "base/text.h"
#include "tools/client/daemon_client.h"
#include "tools/client/prepare_load.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/template_report.h"
#include "weights/sha256.h"

namespace sticky::stickyctl {
namespace {

using client::DaemonClient;
using client::Failed;
using client::Outcome;

constexpr std::int64_t kDaemonMs = 2000;  // a daemon is asked, not needed

Outcome<wire::StatusReply> AskStatus(const Request& request) {
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket, kDaemonMs));
  return daemon.AskFor<wire::StatusReply>(wire::StatusRequest{});
}

std::vector<CheckedFile> FactsOf(const std::vector<weights::OpenFile>& files, SourceKind kind) {
  std::vector<CheckedFile> facts;
  for (const weights::OpenFile& file : files) {
    CheckedFile fact;
    fact.name = file.name;
    fact.role = kind == SourceKind::kFiles ? "whole" : file.is_weights ? "weights" : "small";
    fact.size_bytes = file.size_bytes;
    fact.expected_sha256 = file.expected_sha256;
    fact.sha256 = file.blob_sha256;
    facts.push_back(std::move(fact));
  }
  return facts;
}

// Reads every file whole. Errors: as weights::Sha256Of.
Status ReadSha256s(std::span<const weights::SourceFile> files, std::vector<CheckedFile>& facts) {
  for (std::size_t i = 0; i < facts.size(); ++i) {
    STICKY_ASSIGN(facts[i].sha256, weights::Sha256Of(files[i]));
    facts[i].sha256_was_read = true;
  }
  return Ok{};
}

Status CompareSha256s(const std::vector<CheckedFile>& facts) {
  for (const CheckedFile& file : facts) {
    if (!file.expected_sha256 || !file.sha256 || *file.expected_sha256 == *file.sha256) continue;
    const char* const from = file.sha256_was_read ? "" : " by its name in the hub's cache";
    return Error{Code::kCorrupt,
                 "'" + Escape(file.name) + "' has the SHA-256 " + ToHex(*file.sha256) + from +
                     ", but source.expect.sha256 says " + ToHex(*file.expected_sha256) +
                     ": another version, or a damaged download"};
  }
  return Ok{};
}

// The bytes of the model's state, or of files that are kept whole.
Status AddPlan(std::span<const weights::SourceFile> files, Dtype best_dtype,
               TemplateReport& report) {
  if (report.made.source.kind == SourceKind::kFiles) {
    for (const CheckedFile& file : report.files) report.needed_bytes += file.size_bytes;
    return Ok{};
  }
  weights::PlanOptions options;
  options.dtype = report.made.dtype;
  options.best_matrix_dtype = best_dtype;
  STICKY_ASSIGN(report.model, LookAtModel(files, options));
  report.needed_bytes = report.model->arena_bytes;
  const bool is_language_model = !report.model->architecture.empty();
  if (options.dtype == DtypeChoice::kAuto && is_language_model) report.auto_dtype = best_dtype;
  return Ok{};
}

Status CheckFiles(std::vector<weights::OpenFile> opened, bool read_all, Dtype best_dtype,
                  TemplateReport& report) {
  report.files = FactsOf(opened, report.made.source.kind);
  const ReadableFiles readable(std::move(opened));
  if (read_all) STICKY_TRY(ReadSha256s(readable.files(), report.files));
  STICKY_TRY(CompareSha256s(report.files));
  return AddPlan(readable.files(), best_dtype, report);
}

Outcome<TemplateReport> CheckTemplate(const Request& request) {
  const client::WideDescriptorLimit wide;
  TemplateReport report;
  report.path = request.options.operands()[0];
  STICKY_STEP(client::FoundSource found, client::FindSource(report.path));
  report.made = std::move(found.made);
  report.source = std::move(found.source);
  report.template_digest = config::TemplateDigest(report.made.canonical);
  Dtype best_dtype = BestMatrixDtype();
  Outcome<wire::StatusReply> status = AskStatus(request);
  if (status.ok()) {
    report.budget = Budget{status.value().budget_bytes, status.value().used_bytes};
    best_dtype = status.value().best_dtype == DtypeChoice::kBf16 ? Dtype::kBf16 : Dtype::kF32;
  } else {
    report.no_budget = status.failed().error.message;
  }
  const Status checked =
      CheckFiles(std::move(found.files), request.options.Has("sha256"), best_dtype, report);
  if (checked.ok()) return report;
  Error error = checked.error();
  error.message = "check '" + report.made.name + "': " + error.message;
  return Failed{Stage::kModel, std::move(error)};
}

}  // namespace

int TemplateCheck(const Request& request, Console& console) {
  Outcome<TemplateReport> outcome = CheckTemplate(request);
  if (!outcome.ok()) return console.Fail(outcome.failed());
  const TemplateReport& report = outcome.value();
  if (report.Fits().value_or(true)) {
    console.Print(ReportJson(report), ReportText(report, UsersOfThisNode()));
    return kExitOk;
  }
  if (!console.json()) console.Print(ReportJson(report), ReportText(report, UsersOfThisNode()));
  const Error large{Code::kOutOfMemory,
                    "check '" + report.made.name + "': it needs " + ByteCount(report.needed_bytes) +
                        ", but this node's budget is " + ByteCount(report.budget->budget_bytes) +
                        "; take another dtype or node, or give the daemon more (--memory)"};
  return console.Fail({Stage::kAnswer, large}, ReportJson(report));
}

}  // namespace sticky::stickyctl
