#include "cc/program/lowering_target.h"

#include <string>

#include "tensorflow/core/framework/resource_base.h"

namespace tf_tpu_ext {
namespace {

constexpr char kTargetContainer[] = "tf_tpu_ext";
constexpr char kTargetMark[] = "lowering_target";

class LoweringTarget : public tensorflow::ResourceBase {
 public:
  std::string DebugString() const override { return "a real TPU"; }
};

}  // namespace

absl::Status SetLowersForTarget(tensorflow::ResourceMgr* manager) {
  return manager->Create(kTargetContainer, kTargetMark, new LoweringTarget);
}

bool LowersForTarget(tensorflow::ResourceMgr* manager) {
  LoweringTarget* found = nullptr;
  if (!manager->Lookup(kTargetContainer, kTargetMark, &found).ok()) return false;
  found->Unref();
  return true;
}

}  // namespace tf_tpu_ext
