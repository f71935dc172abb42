#include "cc/compiler/lower/program_replicas.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/resource_base.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/platform/refcount.h"

namespace tf_tpu_ext {
namespace {

constexpr char kContainer[] = "tf_tpu_ext";
constexpr char kName[] = "program_replicas";

class ProgramReplicas : public tensorflow::ResourceBase {
 public:
  explicit ProgramReplicas(int64_t count) : count_(count) {}
  int64_t count() const { return count_; }
  std::string DebugString() const override { return absl::StrCat(count_, " replicas"); }

 private:
  const int64_t count_;
};

}  // namespace

absl::Status SetProgramReplicas(tensorflow::ResourceMgr* manager, int64_t num_replicas) {
  return manager->Create(kContainer, kName, new ProgramReplicas(num_replicas));
}

int64_t GetProgramReplicas(tensorflow::ResourceMgr* manager) {
  ProgramReplicas* replicas = nullptr;
  if (!manager->Lookup(kContainer, kName, &replicas).ok()) return 1;
  const tensorflow::core::ScopedUnref unref(replicas);
  return replicas->count();
}

}  // namespace tf_tpu_ext
