#include "cc/runtime/launch_ids.h"

#include <atomic>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/lib/core/refcount.h"

namespace tf_tpu_ext {
namespace {

// The id that the replicas of a step share, until all have taken it.
class SharedLaunchId : public tensorflow::ResourceBase {
 public:
  explicit SharedLaunchId(int num_replicas) : taken_(num_replicas, false) {}

  std::string DebugString() const override { return absl::StrCat("TPU launch ", id_); }

  // Returns the id, and in `complete` whether every replica has it now.
  absl::StatusOr<int64_t> Take(int replica, bool* complete) {
    absl::MutexLock lock(&mutex_);
    if (replica >= static_cast<int>(taken_.size()) || taken_[replica]) {
      return absl::InternalError(absl::StrCat("replica ", replica, " of ", taken_.size(),
                                              " comes twice or is one too many"));
    }
    taken_[replica] = true;
    *complete = ++num_taken_ == static_cast<int>(taken_.size());
    return id_;
  }

 private:
  const int64_t id_ = NextLaunchId();
  absl::Mutex mutex_;
  std::vector<bool> taken_ ABSL_GUARDED_BY(mutex_);
  int num_taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

ReplicaPlace ParseReplicaPlace(absl::string_view op_name, absl::string_view parallel_ids) {
  ReplicaPlace place;
  std::vector<std::string> groups;
  for (absl::string_view id : absl::StrSplit(parallel_ids, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(id, absl::MaxSplits(':', 1));
    int replica = -1;
    if (absl::StartsWith(id, "r") && absl::SimpleAtoi(parts.second, &replica)) {
      place.replica = replica;
      groups.emplace_back(parts.first);
    } else {
      groups.emplace_back(id);
    }
  }
  if (!place.in_replica()) return place;
  // Group numbers start anew in each function; an inlined one is told from others by its scope.
  const size_t scope_end = op_name.rfind('/');
  place.group =
      absl::StrCat(scope_end == absl::string_view::npos ? "" : op_name.substr(0, scope_end + 1),
                   "|", absl::StrJoin(groups, ","));
  return place;
}

int64_t NextLaunchId() {
  static std::atomic<int64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

absl::StatusOr<int64_t> LaunchIdOfReplica(tensorflow::OpKernelContext* context,
                                          const ReplicaPlace& place, int num_replicas) {
  tensorflow::ScopedStepContainer* step = context->step_container();
  if (step == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("Op ", context->op_kernel().name(),
                     " compiles for one replica in a run without a step container, so the replicas "
                     "of its step can't find each other. Give the inputs of the replicated "
                     "computation static shapes, or compute them outside it."));
  }
  // What TensorFlow's own transfers between devices go by: the rendezvous of this run of the
  // graph, and the iteration.
  const tensorflow::FrameAndIter iteration = context->frame_iter();
  const std::string name =
      absl::StrCat("tpu_launch|", absl::Hex(reinterpret_cast<uintptr_t>(context->rendezvous())),
                   "|", iteration.frame_id, ":", iteration.iter_id, "|", place.group);
  SharedLaunchId* found = nullptr;
  absl::Status status = step->LookupOrCreate<SharedLaunchId>(
      context->resource_manager(), name, &found, [num_replicas](SharedLaunchId** created) {
        *created = new SharedLaunchId(num_replicas);
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  tensorflow::core::ScopedUnref unref(found);
  bool complete = false;
  absl::StatusOr<int64_t> id = found->Take(place.replica, &complete);
  if (!id.ok()) {
    return absl::InternalError(absl::StrCat("Op ", context->op_kernel().name(), ": ",
                                            id.status().message(),
                                            ". Report this with the graph."));
  }
  if (complete) {
    status = step->Delete<SharedLaunchId>(context->resource_manager(), name);
    if (!status.ok()) return status;
  }
  return id;
}

}  // namespace tf_tpu_ext
