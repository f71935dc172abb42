// XLA kernels of ops that act on the world outside the program: each is one custom call, in program
// order.
#ifndef TF_TPU_EXT_CC_TRANSFER_EFFECT_XLA_KERNEL_H_
#define TF_TPU_EXT_CC_TRANSFER_EFFECT_XLA_KERNEL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {

class EffectXlaKernel : public tensorflow::XlaOpKernel {
 public:
  explicit EffectXlaKernel(tensorflow::OpKernelConstruction* construction);

 protected:
  // Adds a custom call after the previous ones. `config` is its backend_config; `sharding` says on
  // which cores of a replica with several cores the call happens. All arrays are row-major.
  absl::Status Call(tensorflow::XlaOpKernelContext* context, const std::string& target,
                    const std::string& config, const xla::OpSharding& sharding,
                    std::vector<xla::XlaOp> operands, std::vector<xla::Shape> results,
                    std::vector<xla::XlaOp>* received) const;

  // How a real TPU does the same.
  enum class OnTarget { kHostTransfer, kInfeed, kOutfeed };
  virtual OnTarget on_target() const { return OnTarget::kHostTransfer; }

  // On the core that the program names, or else on the first one.
  static xla::OpSharding OneCore(const xla::XlaBuilder& builder);

 private:
  // What the call must follow.
  absl::StatusOr<xla::XlaOp> InputToken(tensorflow::XlaOpKernelContext* context) const;

  // What Call adds if the program is lowered for a real TPU: XLA's own transfers.
  absl::Status TransferOnTarget(tensorflow::XlaOpKernelContext* context,
                                const xla::OpSharding& sharding, std::vector<xla::XlaOp> operands,
                                const std::vector<xla::Shape>& results,
                                std::vector<xla::XlaOp>* received) const;

  std::vector<std::string> token_inputs_;
  std::string token_owner_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_EFFECT_XLA_KERNEL_H_
