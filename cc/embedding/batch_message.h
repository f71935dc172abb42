// An embedding batch on its way through a core's queue.
#ifndef TF_TPU_EXT_CC_EMBEDDING_BATCH_MESSAGE_H_
#define TF_TPU_EXT_CC_EMBEDDING_BATCH_MESSAGE_H_

#include <memory>
#include <string>
#include <vector>

#include "cc/embedding/batch.h"
#include "cc/embedding/engine.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_tensor_data.h"

namespace tf_tpu_ext {

struct BatchMessage {
  // The engine against whose tables the ids were checked.
  std::shared_ptr<const EmbeddingEngine> engine;
  std::shared_ptr<const EmbeddingBatch> batch;

  // What a Variant requires of its value. The message never leaves this process.
  std::string TypeName() const { return "tf_tpu_ext::BatchMessage"; }
  void Encode(tensorflow::VariantTensorData*) const {}
  bool Decode(const tensorflow::VariantTensorData&) { return false; }
};

inline std::vector<tensorflow::Tensor> Wrap(BatchMessage message) {
  tensorflow::Tensor tensor(tensorflow::DT_VARIANT, {});
  tensor.scalar<tensorflow::Variant>()() = std::move(message);
  return {tensor};
}

// Null if the tensors are not such a message.
inline const BatchMessage* Unwrap(const std::vector<tensorflow::Tensor>& tensors) {
  if (tensors.size() != 1 || tensors[0].dtype() != tensorflow::DT_VARIANT) return nullptr;
  return tensors[0].scalar<tensorflow::Variant>()().get<BatchMessage>();
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_BATCH_MESSAGE_H_
