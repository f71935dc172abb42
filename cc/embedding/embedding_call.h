// The custom calls through which a running program uses the embedding engine.
#ifndef TF_TPU_EXT_CC_EMBEDDING_EMBEDDING_CALL_H_
#define TF_TPU_EXT_CC_EMBEDDING_EMBEDDING_CALL_H_

namespace tf_tpu_ext {

// Results: the activations of the core's next batch.
inline constexpr char kReceiveActivationsTarget[] = "tf_tpu_ext_receive_activations";

// Operands: the gradients, and then scalars, the dynamic inputs.
inline constexpr char kSendGradientsTarget[] = "tf_tpu_ext_send_gradients";

// Attributes: the TensorFlow op's name, and how many of its operands are gradients.
inline constexpr char kEmbeddingOp[] = "op";
inline constexpr char kNumGradients[] = "gradients";

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_EMBEDDING_CALL_H_
