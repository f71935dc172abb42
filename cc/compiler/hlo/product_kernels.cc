#include "cc/compiler/hlo/product_kernels.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cc/base/cpu_kernels.h"
#include "cc/base/process.h"
#include "cc/program/kernel_call.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/util/port.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/util.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DataType;
using tensorflow::NodeDef;
using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;
using xla::Shape;
using xla::ShapeUtil;

// Calling a kernel takes 5 to 15 microseconds, in which XLA does about this many multiplications.
constexpr int64_t kLeastProductWork = 1'000'000;

// Processors multiply tiles. Where a result has fewer rows or columns, XLA is faster.
constexpr int64_t kLeastSide = 8;

// A kernel has to be this much faster, so that noise does not decide.
constexpr double kLeastGain = 1.25;

// oneDNN's product of two matrices, or of two batches of them.
NodeDef ProductNode(DataType type, bool adjoint_lhs, bool adjoint_rhs) {
  NodeDef node;
  node.set_name("product");
  node.set_op("_MklBatchMatMulV2");
  // A node must name its inputs, but nobody looks them up.
  node.add_input("x");
  node.add_input("y");
  tensorflow::AddNodeAttr("T", type, &node);
  tensorflow::AddNodeAttr("adj_x", adjoint_lhs, &node);
  tensorflow::AddNodeAttr("adj_y", adjoint_rhs, &node);
  tensorflow::AddNodeAttr("grad_x", false, &node);
  tensorflow::AddNodeAttr("grad_y", false, &node);
  tensorflow::AddNodeAttr("_kernel", "MklNameChangeOp", &node);
  return node;
}

// The least time that the kernel needs for a product on the calling thread. Infinite if it can't
// compute it.
absl::Duration TimeOfProduct(DataType type) {
  constexpr int64_t kSize = 256;
  constexpr int kRuns = 5;
  const auto kernel = CpuKernels::OfProcess().Get(ProductNode(type, false, false));
  if (!kernel.ok()) return absl::InfiniteDuration();
  std::vector<tensorflow::Tensor> operands;
  for (int i = 0; i < 2; ++i) {
    tensorflow::Tensor& operand =
        operands.emplace_back(type, tensorflow::TensorShape({kSize, kSize}));
    std::memset(operand.data(), 0, operand.TotalBytes());
  }
  absl::Duration least = absl::InfiniteDuration();
  // The first run prepares the kernel.
  for (int i = 0; i <= kRuns; ++i) {
    const absl::Time start = absl::Now();
    CpuKernelRun run(*kernel, Process::Get().kernel_threads->OfCaller(), absl::MakeSpan(operands),
                     nullptr);
    if (!run.status().ok()) return absl::InfiniteDuration();
    least = std::min(least, absl::Now() - start);
  }
  return least;
}

// An operand of a product, as a batch of matrices.
struct Matrices {
  // The operand's dimensions in the order batch, rows, columns.
  std::vector<int64_t> order;
  // Whether the columns are what the kernel expects as rows.
  bool adjoint = false;
};

// Whether dimensions in this order are in memory as they are.
bool IsAsItIs(const std::vector<int64_t>& order) { return absl::c_is_sorted(order); }

// The dimensions of a product, whose result has them in the order batch, lhs_free, rhs_free.
struct ProductDimensions {
  std::vector<int64_t> lhs_batch, rhs_batch, lhs_summed, rhs_summed, lhs_free, rhs_free;
};

std::vector<int64_t> FreeDimensions(const Shape& shape, const std::vector<int64_t>& batch,
                                    const std::vector<int64_t>& summed) {
  const auto free = xla::GetNonContractingDims(shape.dimensions().size(), summed, batch);
  return {free.begin(), free.end()};
}

ProductDimensions DimensionsOf(const HloInstruction& product) {
  const xla::DotDimensionNumbers& numbers = product.dot_dimension_numbers();
  ProductDimensions dimensions;
  absl::c_copy(numbers.lhs_batch_dimensions(), std::back_inserter(dimensions.lhs_batch));
  absl::c_copy(numbers.rhs_batch_dimensions(), std::back_inserter(dimensions.rhs_batch));
  // In what order is summed makes no difference. This one may be that in memory.
  std::vector<std::pair<int64_t, int64_t>> summed;
  for (int i = 0; i < numbers.lhs_contracting_dimensions_size(); ++i) {
    summed.emplace_back(numbers.lhs_contracting_dimensions(i),
                        numbers.rhs_contracting_dimensions(i));
  }
  absl::c_sort(summed);
  for (const auto& [lhs, rhs] : summed) {
    dimensions.lhs_summed.push_back(lhs);
    dimensions.rhs_summed.push_back(rhs);
  }
  dimensions.lhs_free =
      FreeDimensions(product.operand(0)->shape(), dimensions.lhs_batch, dimensions.lhs_summed);
  dimensions.rhs_free =
      FreeDimensions(product.operand(1)->shape(), dimensions.rhs_batch, dimensions.rhs_summed);
  return dimensions;
}

std::vector<int64_t> Joined(std::vector<int64_t> order, const std::vector<int64_t>& second,
                            const std::vector<int64_t>& third) {
  order.insert(order.end(), second.begin(), second.end());
  order.insert(order.end(), third.begin(), third.end());
  return order;
}

// Chooses the order in which the operand needs no copy, if there is one.
Matrices MatricesOf(const std::vector<int64_t>& batch, const std::vector<int64_t>& rows,
                    const std::vector<int64_t>& columns) {
  std::vector<int64_t> order = Joined(batch, rows, columns);
  std::vector<int64_t> adjoint = Joined(batch, columns, rows);
  if (!IsAsItIs(order) && IsAsItIs(adjoint)) return {std::move(adjoint), true};
  return {std::move(order), false};
}

int64_t SizeOf(const Shape& shape, const std::vector<int64_t>& dimensions) {
  int64_t size = 1;
  for (const int64_t d : dimensions) size *= shape.dimensions(d);
  return size;
}

// How many multiplications the product takes.
int64_t WorkOf(const HloInstruction& product, const ProductDimensions& dimensions) {
  return ShapeUtil::ElementsIn(product.shape()) *
         SizeOf(product.operand(0)->shape(), dimensions.lhs_summed);
}

bool IsForKernel(const HloInstruction& product) {
  if (product.opcode() != HloOpcode::kDot || product.operand_count() != 2 ||
      product.precision_config().algorithm() != xla::PrecisionConfig::ALG_UNSET) {
    return false;
  }
  const auto fits = [](const Shape& shape) {
    return shape.IsArray() && shape.element_type() == xla::BF16 && shape.is_static();
  };
  const Shape& lhs = product.operand(0)->shape();
  const Shape& rhs = product.operand(1)->shape();
  if (!fits(product.shape()) || !fits(lhs) || !fits(rhs)) return false;
  const ProductDimensions dimensions = DimensionsOf(product);
  return SizeOf(lhs, dimensions.lhs_free) >= kLeastSide &&
         SizeOf(rhs, dimensions.rhs_free) >= kLeastSide &&
         WorkOf(product, dimensions) >= kLeastProductWork;
}

// The operand with its dimensions in the given order, as a shape of three dimensions.
HloInstruction* InOrder(HloInstruction* operand, const std::vector<int64_t>& order,
                        const std::vector<int64_t>& shape) {
  HloComputation* const computation = operand->parent();
  if (!IsAsItIs(order)) {
    operand = computation->AddInstruction(HloInstruction::CreateTranspose(
        ShapeUtil::PermuteDimensions(order, operand->shape()), operand, order));
  }
  return computation->AddInstruction(
      HloInstruction::CreateReshape(ShapeUtil::MakeShape(xla::BF16, shape), operand));
}

absl::Status CallKernel(HloInstruction* product) {
  const ProductDimensions dimensions = DimensionsOf(*product);
  const Shape& lhs_shape = product->operand(0)->shape();
  const int64_t batch = SizeOf(lhs_shape, dimensions.lhs_batch);
  const int64_t rows = SizeOf(lhs_shape, dimensions.lhs_free);
  const int64_t summed = SizeOf(lhs_shape, dimensions.lhs_summed);
  const int64_t columns = SizeOf(product->operand(1)->shape(), dimensions.rhs_free);
  const Matrices lhs = MatricesOf(dimensions.lhs_batch, dimensions.lhs_free, dimensions.lhs_summed);
  const Matrices rhs = MatricesOf(dimensions.rhs_batch, dimensions.rhs_summed, dimensions.rhs_free);
  const auto matrices = [&](bool adjoint, int64_t height, int64_t width) {
    if (adjoint) std::swap(height, width);
    return std::vector<int64_t>{batch, height, width};
  };
  HloInstruction* const operands[] = {
      InOrder(product->mutable_operand(0), lhs.order, matrices(lhs.adjoint, rows, summed)),
      InOrder(product->mutable_operand(1), rhs.order, matrices(rhs.adjoint, summed, columns))};
  KernelCall call;
  call.op = product->metadata().op_type();
  call.name = product->metadata().op_name();
  call.node = ProductNode(DataType::DT_BFLOAT16, lhs.adjoint, rhs.adjoint);
  call.work = WorkOf(*product, dimensions);
  HloComputation* const computation = product->parent();
  HloInstruction* const result = computation->AddInstruction(HloInstruction::CreateCustomCall(
      ShapeUtil::MakeShape(xla::BF16, {batch, rows, columns}), operands, kKernelTarget,
      {operands[0]->shape(), operands[1]->shape()}, Encode(call), xla::API_VERSION_TYPED_FFI));
  result->set_metadata(product->metadata());
  return computation->ReplaceWithNewInstruction(
      product, HloInstruction::CreateReshape(product->shape(), result));
}

}  // namespace

bool KernelsMultiplyBFloat16Fast() {
  static const bool fast =
      tensorflow::IsMklEnabled() &&
      TimeOfProduct(DataType::DT_BFLOAT16) * kLeastGain < TimeOfProduct(DataType::DT_FLOAT);
  return fast;
}

int64_t CountProductsForKernels(const xla::HloModule& module) {
  int64_t count = 0;
  for (const HloComputation* computation : module.computations()) {
    count += absl::c_count_if(computation->instructions(), [](const HloInstruction* instruction) {
      return IsForKernel(*instruction);
    });
  }
  return count;
}

absl::Status UseKernelsForProducts(xla::HloModule* module) {
  for (HloComputation* computation : module->computations()) {
    for (HloInstruction* instruction : computation->MakeInstructionPostOrder()) {
      if (IsForKernel(*instruction)) TF_RETURN_IF_ERROR(CallKernel(instruction));
    }
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
