// ModelSource over a private load: the create-destroy way, with the daemon's own loader code.

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "base/cpu_features.h"
#include "base/text.h"
#include "daemon/load/fd_byte_source.h"
#include "daemon/load/load_model.h"
#include "tools/sticky-llm/model_source.h"
#include "weights/files/resolve.h"
#include "weights/load_plan.h"

namespace sticky::llm {
namespace {

// Anonymous memory of this process alone.
class Pages {
 public:
  static Result<Pages> Map(std::uint64_t size_bytes) {
    void* const address =
        ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
      return ErrnoError("map " + ByteCount(size_bytes) + " for a private load", errno);
    }
    ::madvise(address, size_bytes, MADV_HUGEPAGE);  // fewer faults where the node allows it
    return Pages(static_cast<std::uint8_t*>(address), size_bytes);
  }
  Pages(Pages&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Pages& operator=(Pages&&) = delete;
  ~Pages() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }
  std::span<std::uint8_t> bytes() const { return bytes_; }

 private:
  Pages(std::uint8_t* data, std::uint64_t size_bytes) : bytes_(data, size_bytes) {}
  std::span<std::uint8_t> bytes_;
};

class PrivateModel : public ModelSource {
 public:
  PrivateModel(weights::LoadPlan plan, Pages pages, const Digest& digest)
      : plan_(std::move(plan)), pages_(std::move(pages)), digest_(digest) {
    for (const weights::PlannedTensor& tensor : plan_.tensors) tensors_[tensor.name] = &tensor;
  }

  std::optional<engine::TensorView> Find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return std::nullopt;
    const weights::PlannedTensor& tensor = *found->second;
    return engine::TensorView{pages_.bytes().data() + tensor.offset, tensor.dtype, tensor.shape};
  }

  std::vector<std::string_view> Names() const override {
    std::vector<std::string_view> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }

  std::optional<std::span<const std::uint8_t>> FindAsset(std::string_view name) const override {
    for (const weights::PlannedAsset& asset : plan_.assets) {
      if (asset.name == name) return pages_.bytes().subspan(asset.offset, asset.bytes.size());
    }
    return std::nullopt;
  }

  Digest content_digest() const override { return digest_; }
  std::uint64_t arena_bytes() const override { return plan_.arena_bytes; }
  bool shared() const override { return false; }

 private:
  weights::LoadPlan plan_;
  Pages pages_;
  Digest digest_;
  std::map<std::string_view, const weights::PlannedTensor*> tensors_;
};

}  // namespace

Result<std::unique_ptr<ModelSource>> LoadPrivately(const PrivateLoadOptions& options) {
  STICKY_ASSIGN(std::vector<weights::OpenFile> found, weights::ResolveModel(options.path));
  std::vector<std::unique_ptr<load::FdByteSource>> sources;
  std::vector<weights::SourceFile> files;
  for (weights::OpenFile& file : found) {
    sources.push_back(std::make_unique<load::FdByteSource>(std::move(file.fd), file.name));
    files.push_back({file.name, file.size_bytes, sources.back().get()});
  }
  weights::PlanOptions plan_options;
  plan_options.dtype = options.dtype;
  plan_options.best_matrix_dtype = BestMatrixDtype();
  STICKY_ASSIGN(weights::LoadPlan plan, weights::PlanLoad(files, plan_options));
  STICKY_ASSIGN(Pages pages, Pages::Map(plan.arena_bytes));
  load::FillOptions fill_options;
  constexpr int kThreadsMax = 64;
  const int cpus = static_cast<int>(std::thread::hardware_concurrency());
  fill_options.thread_count =
      std::clamp(options.thread_count > 0 ? options.thread_count : cpus, 1, kThreadsMax);
  STICKY_ASSIGN(const load::FillResult filled,
                load::FillArena(plan, files, pages.bytes(), fill_options));
  return std::unique_ptr<ModelSource>(
      std::make_unique<PrivateModel>(std::move(plan), std::move(pages), filled.content_digest));
}

}  // namespace sticky::llm
