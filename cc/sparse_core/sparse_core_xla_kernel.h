// What XLA kernels of tables that are divided over SparseCores have in common.
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

// Which results of a call may have the memory of which operands.
using ResultAliases = std::vector<std::pair<xla::ShapeIndex, std::pair<int64_t, xla::ShapeIndex>>>;

// A custom call on row-major arrays, without effects. Its results are those of a tuple.
absl::StatusOr<xla::XlaOp> SparseCoreCall(xla::XlaBuilder* builder, const char* target,
                                          const std::string& config,
                                          const std::vector<xla::XlaOp>& operands,
                                          const std::vector<xla::Shape>& results,
                                          const ResultAliases& aliases);

// A kernel of an op with a table and the packed ids of a chip's samples. A chip is a core of the
// program.
class SparseCoreXlaKernel : public tensorflow::XlaOpKernel {
 public:
  explicit SparseCoreXlaKernel(tensorflow::OpKernelConstruction* construction);

 protected:
  // The ids of all chips, and the number of this one.
  struct Ids {
    SparseCoreShape shape;
    xla::XlaOp packed;
    xla::XlaOp chip;
  };

  // `samples` is how many a chip has, `table` the shape of its part of the table.
  absl::StatusOr<Ids> ReadIds(tensorflow::XlaOpKernelContext* context, int64_t samples,
                              const xla::Shape& table) const;

  static std::vector<xla::ReplicaGroup> AllChips(const SparseCoreShape& shape);

  static xla::XlaOp GradientsOfAllChips(tensorflow::XlaOpKernelContext* context,
                                        const SparseCoreShape& shape);

  // How many samples have gradients; an error if these don't fit the table.
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
