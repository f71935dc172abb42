// For tests: single host ops, run on a CPU, and the embedding that they configure.
#ifndef TF_TPU_EXT_CC_EMBEDDING_EMBEDDING_OPS_TESTING_H_
#define TF_TPU_EXT_CC_EMBEDDING_EMBEDDING_OPS_TESTING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "cc/base/tensor_testing.h"
#include "cc/embedding/batch_message.h"
#include "cc/embedding/current_embedding.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/process_testing.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_factory.h"
#include "tensorflow/core/framework/node_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorflow/core/public/version.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {

// Runs one op on a CPU.
class OpRunner {
 public:
  explicit OpRunner(const std::string& op) : builder_("the_op", op) {}

  OpRunner& Input(const tensorflow::Tensor& value) {
    builder_.Input("input", static_cast<int>(inputs_.size()), value.dtype());
    inputs_.push_back(value);
    return *this;
  }
  OpRunner& InputList(const std::vector<tensorflow::Tensor>& values) {
    std::vector<tensorflow::NodeDefBuilder::NodeOut> list;
    for (const tensorflow::Tensor& value : values) {
      list.emplace_back("input", static_cast<int>(inputs_.size()), value.dtype());
      inputs_.push_back(value);
    }
    builder_.Input(list);
    return *this;
  }
  template <typename T>
  OpRunner& Attr(const std::string& name, const T& value) {
    builder_.Attr(name, value);
    return *this;
  }

  OpRunner& InStep(int64_t step_id) {
    step_id_ = step_id;
    return *this;
  }

  absl::StatusOr<std::vector<tensorflow::Tensor>> Run() {
    tensorflow::NodeDef node;
    TF_RETURN_IF_ERROR(builder_.Finalize(&node));
    static auto* const device = tensorflow::DeviceFactory::NewDevice(
                                    "CPU", tensorflow::SessionOptions(), "/job:a/replica:0/task:0")
                                    .release();
    absl::Status status;
    std::unique_ptr<tensorflow::OpKernel> kernel = tensorflow::CreateOpKernel(
        tensorflow::DeviceType("CPU"), device, tensorflow::cpu_allocator(), node,
        TF_GRAPH_DEF_VERSION, &status);
    TF_RETURN_IF_ERROR(status);
    std::vector<tensorflow::TensorValue> values;
    for (tensorflow::Tensor& input : inputs_) values.emplace_back(&input);
    std::vector<tensorflow::AllocatorAttributes> outputs(kernel->num_outputs());
    tensorflow::OpKernelContext::Params params;
    params.device = device;
    params.op_kernel = kernel.get();
    params.inputs = values;
    params.output_attr_array = outputs.data();
    params.step_id = step_id_;
    tensorflow::OpKernelContext context(&params);
    if (tensorflow::AsyncOpKernel* async = kernel->AsAsync(); async != nullptr) {
      absl::Notification done;
      async->ComputeAsync(&context, [&] { done.Notify(); });
      done.WaitForNotification();
    } else {
      kernel->Compute(&context);
    }
    TF_RETURN_IF_ERROR(context.status());
    std::vector<tensorflow::Tensor> results;
    for (int i = 0; i < context.num_outputs(); ++i) results.push_back(*context.mutable_output(i));
    return results;
  }

 private:
  tensorflow::NodeDefBuilder builder_;
  std::vector<tensorflow::Tensor> inputs_;
  int64_t step_id_ = 0;
};

inline std::string Serialized(const std::string& text) {
  tensorflow::tpu::TPUEmbeddingConfiguration config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config.SerializeAsString();
}

inline constexpr char kConfig[] =
    "mode: TRAINING num_tensor_cores: 2"
    " table_descriptor { name: 'video' vocabulary_size: 3 dimension: 2"
    "  optimization_parameters { adagrad {} learning_rate { constant: 1 } } }"
    " table_descriptor { name: 'user' vocabulary_size: 2 dimension: 1"
    "  optimization_parameters { stochastic_gradient_descent {} learning_rate { constant: 1 } } }"
    " feature_descriptor { table_id: 0 input_shape: 2 }"
    " feature_descriptor { table_id: 1 input_shape: 2 }";

// The embedding that the process's ops configure and use.
inline EmbeddingSlot& Embedding() {
  static auto* const made = [] {
    TestProcess& objects = TestProcess::Get();
    auto* const slot = new EmbeddingSlot(&objects.compute_pool);
    objects.process.embedding = slot;
    return slot;
  }();
  return *made;
}

class EmbeddingOpsTest : public testing::Test {
 protected:
  EmbeddingOpsTest() { Embedding(); }
  ~EmbeddingOpsTest() override {
    Embedding().Drop();
    for (int core = 0; core < 8; ++core) {
      TestProcess::Get().channels.Drain({kNoLaunch, kEmbeddingName, core});
    }
  }

  static void Configure() {
    const auto configured =
        OpRunner("ConfigureTPUEmbedding").Attr("config", Serialized(kConfig)).Run();
    ASSERT_TRUE(configured.ok()) << configured.status();
  }

  // The core's next batch; nothing if none is queued.
  static std::optional<BatchMessage> Queued(int core) {
    std::optional<BatchMessage> message;
    const ChannelKey key{kNoLaunch, kEmbeddingName, core};
    TensorChannels& channels = TestProcess::Get().channels;
    const auto id = channels.Receive(key, [&](absl::StatusOr<TensorMessage> received) {
      if (received.ok()) message = *Unwrap(received->tensors);
    });
    if (!message.has_value()) channels.Cancel(key, id, absl::NotFoundError(""));
    return message;
  }

  static OpRunner ShardOp(const std::string& op) {
    OpRunner runner(op);
    runner.Attr("num_shards", 1).Attr("shard_id", 0);
    return runner;
  }
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_EMBEDDING_OPS_TESTING_H_
