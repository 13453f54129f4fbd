#include "tools/stickyctl/template_report.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "tools/stickyctl/render_policy.h"

namespace sticky::stickyctl {
namespace {

template <typename T>
Json HexOrNull(const std::optional<T>& digest) {
  return digest ? Json(ToHex(*digest)) : Json(nullptr);
}

// --- JSON ---------------------------------------------------------------------------------------

Json TemplateJson(const TemplateReport& report) {
  const config::Template& made = report.made;
  return Json{{"path", report.path},
              {"name", made.name},
              {"template_digest", ToHex(report.template_digest)},
              {"device", made.device},
              {"dtype", Name(made.dtype)},
              {"auto_dtype", report.auto_dtype ? Json(Name(*report.auto_dtype)) : Json(nullptr)},
              {"huge_pages", made.huge_pages},
              {"prefault", made.prefault},
              {"build", Name(made.build)},
              {"policy", PolicyJson(made.policy)}};
}

Json FilesJson(const std::vector<CheckedFile>& files) {
  Json list = Json::array();
  for (const CheckedFile& file : files) {
    const char* const from = file.sha256_was_read ? "read" : "blob_name";
    list.push_back(Json{{"name", file.name},
                        {"role", file.role},
                        {"size_bytes", file.size_bytes},
                        {"expected_sha256", HexOrNull(file.expected_sha256)},
                        {"sha256", HexOrNull(file.sha256)},
                        {"sha256_from", file.sha256 ? Json(from) : Json(nullptr)}});
  }
  return list;
}

Json SharesJson(const std::vector<DtypeShare>& shares) {
  Json list = Json::array();
  for (const DtypeShare& share : shares) {
    list.push_back(Json{{"dtype", share.dtype},
                        {"tensor_count", share.tensor_count},
                        {"size_bytes", share.size_bytes}});
  }
  return list;
}

Json ModelJson(const ModelLook& model) {
  const bool is_language_model = !model.architecture.empty();
  return Json{{"format", model.format},
              {"architecture", is_language_model ? Json(model.architecture) : Json(nullptr)},
              {"context_length", is_language_model ? Json(model.context_length) : Json(nullptr)},
              {"tensor_count", model.tensor_count},
              {"stored", SharesJson(model.stored)},
              {"arena", SharesJson(model.arena)},
              {"arena_bytes", model.arena_bytes},
              {"notes", model.notes}};
}

// --- text ---------------------------------------------------------------------------------------

Json BuilderJson(const TemplateReport& report) {
  Json document = Document();
  document["template"] = Json{{"path", report.path},
                              {"name", report.made.name},
                              {"policy", PolicyJson(report.made.policy)}};
  document["for_builder"] = true;
  document["source"] = nullptr;
  document["files"] = Json::array();
  document["model"] = nullptr;
  for (const char* const key : {"needed_bytes", "fits", "refused"}) document[key] = nullptr;
  return document;
}

std::string BuilderText(const TemplateReport& report, const UserNames& users) {
  FieldList fields = {
      {"template", Printable(report.path) + ": is right, for `stickyctl build --template`"},
      {"name", report.made.name},
      {"source",
       "none: a program makes the state, so nothing is planned here; for a load it "
       "would need one"}};
  for (auto& field : PolicyFields(report.made.policy, users)) fields.push_back(std::move(field));
  return Fields(fields);
}

std::string DtypeText(const TemplateReport& report) {
  const std::string dtype = Name(report.made.dtype);
  return report.auto_dtype ? dtype + ": " + Name(*report.auto_dtype) + " here" : dtype;
}

std::string FitsText(const TemplateReport& report) {
  if (!report.budget) {
    return "unknown: " + Printable(report.no_budget) +
           "; what this node's budget would be is not known without a daemon";
  }
  const auto [budget_bytes, used_bytes] = *report.budget;
  const std::uint64_t free_bytes = budget_bytes - std::min(used_bytes, budget_bytes);
  if (report.needed_bytes > budget_bytes) return "no: the budget is " + ByteCount(budget_bytes);
  const std::string free =
      ByteCount(free_bytes) + " of the budget of " + ByteCount(budget_bytes) + " are free";
  return report.needed_bytes <= free_bytes ? "yes: " + free : "not now: only " + free;
}

std::string Sha256Text(const CheckedFile& file) {
  if (!file.sha256) return file.expected_sha256 ? "expected, not read: --sha256 reads it" : "-";
  const char* const from = file.sha256_was_read ? "" : " (by its name in the hub's cache)";
  return ToHex(*file.sha256) + (file.expected_sha256 ? ", as expected" : "") + from;
}

std::string FilesText(const std::vector<CheckedFile>& files) {
  std::vector<Row> rows;
  for (const CheckedFile& file : files) {
    rows.push_back({Printable(file.name), file.role, Number(file.size_bytes), Sha256Text(file)});
  }
  return Table({"FILE", "ROLE", ">BYTES", "SHA-256"}, rows);
}

std::string SharesText(const ModelLook& model) {
  std::vector<Row> rows;
  const auto add = [&rows](const char* where, const std::vector<DtypeShare>& shares) {
    for (const DtypeShare& share : shares) {
      rows.push_back({where, share.dtype, Number(share.tensor_count), Number(share.size_bytes)});
    }
  };
  add("files", model.stored);
  add("state", model.arena);
  return Table({"IN", "DTYPE", ">TENSORS", ">BYTES"}, rows);
}

std::string ModelText(const ModelLook& model) {
  if (model.architecture.empty()) return model.format + ", no language model: tensors as they are";
  return model.format + ", " + Printable(model.architecture) +
         Format(", context of %d positions", model.context_length);
}

}  // namespace

std::optional<bool> TemplateReport::Fits() const {
  if (!budget) return std::nullopt;
  return needed_bytes <= budget->budget_bytes;
}

Json ReportJson(const TemplateReport& report) {
  if (report.is_for_builder) return BuilderJson(report);
  const std::optional<bool> fits = report.Fits();
  Json document = Document();
  document["template"] = TemplateJson(report);
  document["source"] = Json{{"kind", Name(report.made.source.kind)},
                            {"text", report.source},
                            {"expected_digest", HexOrNull(report.made.source.expected.digest)}};
  document["files"] = FilesJson(report.files);
  document["model"] = report.model ? ModelJson(*report.model) : Json(nullptr);
  document["needed_bytes"] = report.needed_bytes;
  document["fits"] = fits ? Json(*fits) : Json(nullptr);
  document["budget_bytes"] = report.budget ? Json(report.budget->budget_bytes) : Json(nullptr);
  document["used_bytes"] = report.budget ? Json(report.budget->used_bytes) : Json(nullptr);
  document["no_budget"] = report.budget ? Json(nullptr) : Json(report.no_budget);
  document["refused"] = report.refusal ? Json(report.refusal->message) : Json(nullptr);
  document["for_builder"] = false;
  return document;
}

std::string ReportText(const TemplateReport& report, const UserNames& users) {
  if (report.is_for_builder) return BuilderText(report, users);
  const config::Template& made = report.made;
  FieldList fields = {{"template", Printable(report.path) + ": is right"},
                      {"name", made.name},
                      {"source", Printable(report.source)}};
  if (report.model) {
    fields.emplace_back("model", ModelText(*report.model));
    fields.emplace_back("dtype", DtypeText(report));
    fields.emplace_back("tensors", Number(report.model->tensor_count));
  } else {
    fields.emplace_back("kept whole", Format("%zu files", report.files.size()));
  }
  fields.emplace_back(
      "memory", ByteCount(report.needed_bytes) + " (" + Number(report.needed_bytes) + " bytes)");
  fields.emplace_back("fits", FitsText(report));
  if (report.refusal) fields.emplace_back("refused", Printable(report.refusal->message));
  fields.emplace_back("build", Name(made.build));
  for (auto& field : PolicyFields(made.policy, users)) fields.push_back(std::move(field));
  fields.emplace_back("template digest", ToHex(report.template_digest));
  if (made.source.expected.digest) {
    fields.emplace_back("expected digest", ToHex(*made.source.expected.digest));
  }
  std::string text = Fields(fields) + "\n" + FilesText(report.files);
  if (!report.model) return text;
  text += "\n" + SharesText(*report.model);
  for (const std::string& note : report.model->notes) text += "note: " + Printable(note) + "\n";
  return text;
}

}  // namespace sticky::stickyctl
