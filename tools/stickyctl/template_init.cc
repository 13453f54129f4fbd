// The command `template init`: a template for a model that is there.

#include <cerrno>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/cpu_features.h"
#include "base/text.h"
#include "config/template.h"
#include "tools/client/prepare_load.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/template_text.h"
#include "weights/files/resolve.h"

namespace sticky::stickyctl {
namespace {

// The path as the template will have it: whole, with links left as they are (the hub's cache is
// made of them, and what they lead to has no telling name).
Result<std::string> WholePath(const std::string& path) {
  if (path.empty()) return Error{Code::kInvalidArgument, "the model's path is empty"};
  std::error_code failure;
  const std::filesystem::path whole = std::filesystem::absolute(path, failure);
  if (failure) return ErrnoError("find the current folder", failure.value());
  std::string text;
  for (const std::filesystem::path& part : whole.relative_path()) {
    if (!part.empty() && part != ".") text += "/" + part.string();
  }
  return text.empty() ? "/" : text;
}

TemplateFacts FactsOf(const std::string& path, const std::vector<weights::OpenFile>& files) {
  TemplateFacts facts;
  facts.path = path;
  facts.auto_dtype = BestMatrixDtype();
  for (const weights::OpenFile& file : files) {
    if (!file.is_weights) continue;
    ++facts.weights_count;
    facts.weights_bytes += file.size_bytes;
    facts.blob_sha256 = file.blob_sha256;
  }
  if (facts.weights_count != 1) facts.blob_sha256.reset();
  return facts;
}

// That a reader of the text finds the model that was meant.
Status CheckText(const std::string& text, const std::string& path) {
  const Result<config::Template> made = config::ParseTemplate(text, "/", "the new template");
  if (!made.ok()) return made.error();
  if (made.value().source.candidates == std::vector<std::string>{path}) return Ok{};
  return Error{Code::kInvalidArgument, "'" + Escape(path) +
                                           "' cannot be written in a template; make a link to it "
                                           "with another name"};
}

Result<std::string> MakeText(const std::string& model) {
  STICKY_ASSIGN(const std::string path, WholePath(model));
  const client::WideDescriptorLimit wide;
  STICKY_ASSIGN(std::vector<weights::OpenFile> files, weights::ResolveModel(path));
  const TemplateFacts facts = FactsOf(path, files);
  const ReadableFiles readable(std::move(files));
  weights::PlanOptions options;
  options.best_matrix_dtype = facts.auto_dtype;
  STICKY_ASSIGN(const ModelLook look, LookAtModel(readable.files(), options));
  STICKY_ASSIGN(std::string text, TemplateText(facts, look));
  STICKY_TRY(CheckText(text, path));
  return text;
}

// Makes the file, which must not be there. On an error none is left.
Status WriteNewFile(const std::string& path, const std::string& text) {
  const std::string doing = "write '" + Escape(path) + "'";
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.valid() && errno == EEXIST) {
    return Error{Code::kInvalidArgument,
                 doing + ": it is there already, and is left as it is; give another name", EEXIST};
  }
  if (!fd.valid()) return ErrnoError(doing, errno);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(fd.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      Error error = ErrnoError(doing, errno);
      ::unlink(path.c_str());
      return error;
    }
    done += static_cast<std::size_t>(count);
  }
  return Ok{};
}

}  // namespace

int TemplateInit(const Request& request, Console& console) {
  const std::string& model = request.options.operands()[0];
  const Result<std::string> text = MakeText(model);
  if (!text.ok()) {
    Error error = text.error();
    error.message = "make a template for '" + Escape(model) + "': " + error.message;
    return console.Fail({Stage::kModel, std::move(error)});
  }
  const std::optional<std::string> output = request.options.Value("output");
  Json document = Document();
  document["text"] = text.value();
  document["output"] = output ? Json(*output) : Json(nullptr);
  if (!output) {
    console.Print(document, text.value());
    return kExitOk;
  }
  const Status written = WriteNewFile(*output, text.value());
  if (!written.ok()) return console.Fail({Stage::kOutput, written.error()});
  console.Print(document, "wrote '" + Printable(*output) + "'; `stickyctl template check " +
                              Printable(*output) + "` checks it\n");
  return kExitOk;
}

}  // namespace sticky::stickyctl
