// For tests: a pod whose hosts are all in this process, each with its own collective table.
#ifndef TF_TPU_EXT_CC_RUNTIME_POD_OF_TABLES_H_
#define TF_TPU_EXT_CC_RUNTIME_POD_OF_TABLES_H_

#include <functional>
#include <memory>
#include <vector>

#include "cc/pods/host_links.h"
#include "cc/pods/pod_testing.h"
#include "cc/runtime/collective_table.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/lib/core/refcount.h"

namespace tf_tpu_ext {

// More than hosts send in one round, and not divisible by any number of hosts.
inline constexpr int kElementsInParts = 70003;

class PodOfTables : public ::testing::Test {
 protected:
  using Schedule = std::function<void(std::function<void()>)>;

  static constexpr RunId kRun{1};

  // Creates the hosts of a new pod, all of which know the run.
  void Connect(
      int hosts, int cores_per_host,
      const Schedule& schedule = [](const std::function<void()>& work) { work(); }) {
    shape_ = MakePod(hosts, cores_per_host, 0).shape;
    rendezvous_.reset(tensorflow::NewLocalRendezvous());
    links_.clear();
    tables_.clear();
    for (int host = 0; host < hosts; ++host) {
      tables_.push_back(std::make_unique<CollectiveTable>());
      const Pod pod = MakePod(hosts, cores_per_host, host);
      links_.push_back(MakeHostLinks(pod, HostsOfPod(pod), "7", tensorflow::FrameAndIter(0, 0),
                                     rendezvous_.get(), schedule));
      tables_.back()->Connect(kRun, links_.back());
    }
  }

  CollectiveTable& TableOf(Core core) { return *tables_[shape_.HostOf(core).value()]; }

  PodShape shape_;
  tensorflow::core::RefCountPtr<tensorflow::Rendezvous> rendezvous_;
  std::vector<std::shared_ptr<HostLinks>> links_;
  // Indexed by host.
  std::vector<std::unique_ptr<CollectiveTable>> tables_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_POD_OF_TABLES_H_
