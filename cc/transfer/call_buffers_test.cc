#include "cc/transfer/call_buffers.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/tensor_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/ffi/api/c_api.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

// The operands of a call in a frame, as XLA passes them.
class Operands {
 public:
  void Add(XLA_FFI_DataType type, const Tensor& tensor) {
    std::vector<int64_t>& dims = dims_.emplace_back();
    for (int d = 0; d < tensor.dims(); ++d) dims.push_back(tensor.dim_size(d));
    tensors_.push_back(tensor);
    XLA_FFI_Buffer& buffer = buffers_.emplace_back();
    buffer = {};
    buffer.dtype = type;
    buffer.data = tensor.data();
    buffer.rank = tensor.dims();
    buffer.dims = dims.data();
    pointers_.push_back(&buffer);
  }
  void AddSize(int32_t value) { Add(XLA_FFI_DataType_S32, MakeScalar(value)); }
  void AddToken() { Add(XLA_FFI_DataType_TOKEN, Tensor()); }

  XLA_FFI_Buffer& operator[](int i) { return buffers_[i]; }
  XLA_FFI_Args args() {
    XLA_FFI_Args args = {};
    args.size = static_cast<int64_t>(pointers_.size());
    args.args = pointers_.data();
    return args;
  }
  XLA_FFI_Rets rets() {
    XLA_FFI_Rets rets = {};
    rets.size = static_cast<int64_t>(pointers_.size());
    rets.rets = pointers_.data();
    return rets;
  }

 private:
  std::deque<std::vector<int64_t>> dims_;
  std::deque<XLA_FFI_Buffer> buffers_;
  std::vector<Tensor> tensors_;  // keep the memory alive
  std::vector<void*> pointers_;
};

Tensor Matrix() { return MakeTensor<float>({1, 2, 3, 4, 5, 6}, TensorShape({2, 3})); }

TEST(CallBuffersTest, TokensAreNoOperands) {
  Operands operands;
  operands.AddToken();
  operands.Add(XLA_FFI_DataType_F32, Matrix());
  operands.AddToken();
  EXPECT_EQ(OperandBuffers(operands.args()).size(), 1);
  EXPECT_EQ(ResultBuffers(operands.rets()).size(), 1);
  const auto read = ReadOperands(operands.args(), {}, OperandMemory::kCopied);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 1);
  EXPECT_EQ(ValuesOf<float>((*read)[0]), ValuesOf<float>(Matrix()));
  EXPECT_EQ((*read)[0].shape(), TensorShape({2, 3}));
}

TEST(CallBuffersTest, CutsDynamicDimensions) {
  Operands operands;
  const Tensor matrix = Matrix();
  operands.Add(XLA_FFI_DataType_F32, matrix);
  operands.Add(XLA_FFI_DataType_F32, matrix);
  operands.AddSize(2);
  operands.AddSize(1);
  operands.AddSize(0);
  const auto read = ReadOperands(operands.args(), {{0, 1}, {0, 0}, {1, 1}}, OperandMemory::kCopied);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2);
  EXPECT_EQ((*read)[0].shape(), TensorShape({1, 2}));
  EXPECT_EQ(ValuesOf<float>((*read)[0]), std::vector<float>({1, 2}));
  EXPECT_EQ((*read)[1].shape(), TensorShape({2, 0}));
}

TEST(CallBuffersTest, RefusesSizesBeyondTheMemory) {
  for (int32_t size : {-1, 4, 1 << 30}) {
    Operands operands;
    operands.Add(XLA_FFI_DataType_F32, Matrix());
    operands.AddSize(size);
    const auto read = ReadOperands(operands.args(), {{0, 1}}, OperandMemory::kCopied);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << size;
    EXPECT_NE(read.status().message().find("it must be from 0 to 3"), std::string::npos)
        << read.status();
  }
}

TEST(CallBuffersTest, RefusesDimensionsThatOperandsLack) {
  Operands operands;
  operands.Add(XLA_FFI_DataType_F32, Matrix());
  operands.AddSize(1);
  const XLA_FFI_Args args = operands.args();
  for (const DynamicDimension& dimension : {DynamicDimension{1, 0}, DynamicDimension{0, 2}}) {
    EXPECT_EQ(ReadOperands(args, {dimension}, OperandMemory::kCopied).status().code(),
              absl::StatusCode::kInternal);
  }
  EXPECT_EQ(ReadOperands(args, {{0, 0}, {0, 1}, {0, 0}}, OperandMemory::kCopied).status().code(),
            absl::StatusCode::kInternal);
}

TEST(CallBuffersTest, BorrowsOnlyWhatKernelsMayRead) {
  const Tensor matrix = Matrix();
  Operands operands;
  operands.Add(XLA_FFI_DataType_F32, matrix);
  auto read = ReadOperands(operands.args(), {}, OperandMemory::kBorrowed);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ((*read)[0].data(), matrix.data());
  read = ReadOperands(operands.args(), {}, OperandMemory::kCopied);
  ASSERT_TRUE(read.ok());
  EXPECT_NE((*read)[0].data(), matrix.data());

  // Unaligned memory is copied.
  const Tensor vector = MakeVector<float>({0, 1, 2, 3});
  Operands unaligned;
  unaligned.Add(XLA_FFI_DataType_F32, vector.Slice(0, 3));
  unaligned[0].data = static_cast<char*>(vector.data()) + sizeof(float);
  read = ReadOperands(unaligned.args(), {}, OperandMemory::kBorrowed);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(ValuesOf<float>((*read)[0]), std::vector<float>({1, 2, 3}));

  // An operand that is reduced is copied.
  operands.AddSize(1);
  read = ReadOperands(operands.args(), {{0, 0}}, OperandMemory::kBorrowed);
  ASSERT_TRUE(read.ok());
  EXPECT_NE((*read)[0].data(), matrix.data());
}

TEST(CallBuffersTest, WritesResults) {
  Tensor memory(tensorflow::DT_FLOAT, TensorShape({2, 3}));
  memory.flat<float>().setZero();
  Operands buffers;
  buffers.Add(XLA_FFI_DataType_F32, memory);
  buffers.AddToken();
  const std::vector<CallResult> results = ResultsOf(buffers.rets());
  ASSERT_EQ(results.size(), 1);
  EXPECT_TRUE(WriteResults(results, {Matrix()}, "cluster").ok());
  EXPECT_EQ(ValuesOf<float>(memory), ValuesOf<float>(Matrix()));
}

TEST(CallBuffersTest, WritesNothingThatDoesNotFit) {
  Tensor first(tensorflow::DT_FLOAT, TensorShape({2, 3})), second(tensorflow::DT_INT32, {});
  first.flat<float>().setZero();
  Operands buffers;
  buffers.Add(XLA_FFI_DataType_F32, first);
  buffers.Add(XLA_FFI_DataType_S32, second);
  const std::vector<CallResult> results = ResultsOf(buffers.rets());
  absl::Status status = WriteResults(results, {Matrix()}, "cluster");
  EXPECT_EQ(status.message(),
            "Op cluster gets 1 tensors from the host; the compiled program expects 2.");
  for (const Tensor& wrong : {MakeScalar<float>(1), MakeVector<int32_t>({1})}) {
    status = WriteResults(results, {Matrix(), wrong}, "cluster");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("Tensor 1 from the host for op cluster is"), std::string::npos)
        << status;
  }
  EXPECT_EQ(first.flat<float>()(0), 0);
}

}  // namespace
}  // namespace tf_tpu_ext
