#include "cc/program/lowering.h"

#include <string>

#include "tensorflow/core/framework/resource_base.h"
#include "tensorflow/core/platform/refcount.h"

namespace tf_tpu_ext {
namespace {

constexpr char kContainer[] = "tf_tpu_ext";
constexpr char kLoweringName[] = "lowering";

class LoweringResource : public tensorflow::ResourceBase {
 public:
  explicit LoweringResource(const Lowering& lowering) : lowering_(lowering) {}
  const Lowering& lowering() const { return lowering_; }
  std::string DebugString() const override { return "a program that is lowered"; }

 private:
  const Lowering lowering_;
};

}  // namespace

absl::Status SetLowering(const Lowering& lowering, tensorflow::ResourceMgr* manager) {
  return manager->Create(kContainer, kLoweringName, new LoweringResource(lowering));
}

Lowering GetLowering(tensorflow::ResourceMgr* manager) {
  LoweringResource* found = nullptr;
  if (!manager->Lookup(kContainer, kLoweringName, &found).ok()) return {};
  const tensorflow::core::ScopedUnref unref(found);
  return found->lowering();
}

}  // namespace tf_tpu_ext
