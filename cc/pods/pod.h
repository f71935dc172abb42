// Which hosts a program runs on, and how TensorFlow's graphs carry that information.
#ifndef TF_TPU_EXT_CC_PODS_POD_H_
#define TF_TPU_EXT_CC_PODS_POD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cc/base/core_numbers.h"
#include "cc/base/number.h"
#include "cc/base/pod_shape.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

struct Pod {
  struct Member {
    // The name of the host's CPU device, as TensorFlow's transfers use it.
    std::string cpu;
    // The incarnation of that device: a worker that has restarted has another one.
    uint64_t incarnation = 0;
  };

  PodShape shape;
  ByNumber<Host, Member> members;

  const Member& here() const { return members[shape.host]; }
};

// Whether a node's attributes say which pod it is part of.
bool HasPod(tensorflow::AttrSlice attributes);

// Writes the pod into the attributes of an op, for the host `pod.shape.host`.
void AddPod(const Pod& pod, tensorflow::Node* node);

// What AddPod wrote. Returns an error if the attributes are damaged.
absl::StatusOr<Pod> PodOf(tensorflow::AttrSlice attributes);

// How errors name a host: by its task.
std::string NameOfHost(const Pod::Member& member);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PODS_POD_H_
