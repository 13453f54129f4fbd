// Where sticky-llm's weights come from: a state that is attached, or a private load of the same
// files by the same loader code. Both look alike to the engine.
//
// Thread: make and end it on one thread; read it from any.

#ifndef STICKY_TOOLS_STICKY_LLM_MODEL_SOURCE_H_
#define STICKY_TOOLS_STICKY_LLM_MODEL_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "base/dtype.h"
#include "base/result.h"
#include "engine/model.h"

namespace sticky::llm {

class ModelSource : public engine::WeightSource {
 public:
  // The bytes of an asset of the canonical state (docs/weights.md), valid as long as this lives.
  virtual std::optional<std::span<const std::uint8_t>> FindAsset(std::string_view name) const = 0;
  virtual Digest content_digest() const = 0;
  virtual std::uint64_t arena_bytes() const = 0;
  virtual bool shared() const = 0;  // an attached state, not a private load
};

struct AttachOptions {
  std::string state;        // empty: $STICKYINVOC_STATE
  std::string socket_path;  // empty: the shim's default
  std::uint32_t wait_ms = 0;
};
// Errors: as sti_attach; os_code tells "no daemon" (ENOENT, ECONNREFUSED) from "try again".
Result<std::unique_ptr<ModelSource>> AttachModel(const AttachOptions& options);

struct PrivateLoadOptions {
  std::string path;  // as a template's source.path
  DtypeChoice dtype = DtypeChoice::kAuto;
  int thread_count = 0;  // 0: as many as there are CPUs
};
// Errors: as weights::ResolveModel, weights::PlanLoad and load::FillArena; kOutOfMemory.
Result<std::unique_ptr<ModelSource>> LoadPrivately(const PrivateLoadOptions& options);

}  // namespace sticky::llm

#endif  // STICKY_TOOLS_STICKY_LLM_MODEL_SOURCE_H_
