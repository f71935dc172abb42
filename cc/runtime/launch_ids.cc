#include "cc/runtime/launch_ids.h"

#include <cstdint>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cc/runtime/launch_table.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/lib/core/refcount.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

// The ID that the members of a group share until all of them have taken it.
class SharedLaunchId : public tensorflow::ResourceBase {
 public:
  SharedLaunchId(LaunchId id, int num_members) : id_(id), num_members_(num_members) {}

  std::string DebugString() const override { return absl::StrCat("TPU launch ", id_); }

  // Returns the ID, and in `complete` whether all members now have it.
  absl::StatusOr<LaunchId> Take(const std::string& member, bool* complete) {
    absl::MutexLock lock(&mutex_);
    if (!members_.insert(member).second || static_cast<int>(members_.size()) > num_members_) {
      return absl::InternalError(
          absl::StrCat("the replica on core ", member, " of ", num_members_,
                       " replicas takes the ID of a launch twice, or is one too many"));
    }
    *complete = static_cast<int>(members_.size()) == num_members_;
    return id_;
  }

 private:
  const LaunchId id_;
  const int num_members_;
  absl::Mutex mutex_;
  std::set<std::string> members_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<LaunchId> LaunchIdOfGroup(tensorflow::OpKernelContext* context, LaunchTable* table,
                                         const std::string& group, const std::string& member,
                                         int num_members) {
  tensorflow::ScopedStepContainer* step = context->step_container();
  if (step == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("Op ", context->op_kernel().name(),
                     " compiles for one replica in a run without a step container, so the replicas "
                     "of its step can't find each other. Give the inputs of the replicated "
                     "computation static shapes, or compute them outside it."));
  }
  // Uses the same identification as TensorFlow's own transfers between devices: the rendezvous of
  // this run of the graph, and the iteration.
  const tensorflow::FrameAndIter iteration = context->frame_iter();
  const std::string name =
      absl::StrCat("tpu_launch|", absl::Hex(reinterpret_cast<uintptr_t>(context->rendezvous())),
                   "|", iteration.frame_id, ":", iteration.iter_id, "|", group);
  SharedLaunchId* found = nullptr;
  TF_RETURN_IF_ERROR(step->LookupOrCreate<SharedLaunchId>(
      context->resource_manager(), name, &found, [table, num_members](SharedLaunchId** created) {
        *created = new SharedLaunchId(table->NextLaunchId(), num_members);
        return absl::OkStatus();
      }));
  tensorflow::core::ScopedUnref unref(found);
  bool complete = false;
  absl::StatusOr<LaunchId> id = found->Take(member, &complete);
  if (!id.ok()) {
    return absl::InternalError(absl::StrCat("Op ", context->op_kernel().name(), ": ",
                                            id.status().message(),
                                            ". Report this with the graph."));
  }
  // The next run of this graph with the same rendezvous is another launch.
  if (complete) {
    TF_RETURN_IF_ERROR(step->Delete<SharedLaunchId>(context->resource_manager(), name));
  }
  return id;
}

}  // namespace tf_tpu_ext
