// What the XLA kernels for tables sharded across SparseCores have in common.
#ifndef TF_TPU_EXT_CC_SPARSE_CORE_SPARSE_CORE_XLA_KERNEL_H_
#define TF_TPU_EXT_CC_SPARSE_CORE_SPARSE_CORE_XLA_KERNEL_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/program/lowering.h"
#include "cc/program/sparse_core_call.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {

xla::Shape RowMajor(xla::Shape shape);

// Which results of a call may use the memory of which operands.
using ResultAliases = std::vector<std::pair<xla::ShapeIndex, std::pair<int64_t, xla::ShapeIndex>>>;

// A custom call on row-major arrays, without side effects. Its results are the elements of a tuple.
absl::StatusOr<xla::XlaOp> SparseCoreCall(xla::XlaBuilder* builder, const char* target,
                                          const std::string& config,
                                          const std::vector<xla::XlaOp>& operands,
                                          const std::vector<xla::Shape>& results,
                                          const ResultAliases& aliases);

// A kernel of an op whose inputs are a table and the packed ids of a chip's samples. A chip is one
// core of the program.
class SparseCoreXlaKernel : public tensorflow::XlaOpKernel {
 public:
  explicit SparseCoreXlaKernel(tensorflow::OpKernelConstruction* construction);

 protected:
  // The ids of all chips, and the number of this chip.
  struct Ids {
    SparseCoreShape shape;
    xla::XlaOp packed;
    xla::XlaOp chip;
  };

  // `samples` is the number of samples of a chip, and `table` is the shape of its part of the
  // table.
  absl::StatusOr<Ids> ReadIds(tensorflow::XlaOpKernelContext* context, int64_t samples,
                              const xla::Shape& table) const;

  static std::vector<xla::ReplicaGroup> AllChips(const SparseCoreShape& shape);

  static xla::XlaOp GradientsOfAllChips(tensorflow::XlaOpKernelContext* context,
                                        const SparseCoreShape& shape);

  // The number of samples that have gradients. An error if these don't fit the table.
  absl::StatusOr<int64_t> SamplesOfGradients(tensorflow::XlaOpKernelContext* context,
                                             const xla::Shape& table) const;

 private:
  absl::Status CheckProgram(const Lowering& lowering) const;
  absl::Status ReadSizes(tensorflow::XlaOpKernelContext* context, int64_t samples,
                         const xla::Shape& table, SparseCoreShape* shape) const;

  SparseCoreShape shape_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_SPARSE_CORE_SPARSE_CORE_XLA_KERNEL_H_
