// Compares strided slices of dimensions of dynamic size with loops that follow Python's definition
// of a slice.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/base/op_testing.h"
#include "cc/base/tensor_testing.h"
#include "cc/compiler/overrides/dynamic_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

// begin:end:stride, where begin and end may be kNone.
struct Slice {
  int32_t begin, end, stride;

  // The positions that it selects from `size` elements, in order, as in Python.
  std::vector<int64_t> PositionsOf(int64_t size) const {
    const auto from_start = [size](int32_t position) {
      return position < 0 ? position + size : static_cast<int64_t>(position);
    };
    std::vector<int64_t> positions;
    // A begin before the first element, seen in the direction of the stride, moves to that element.
    // The stride counts from there.
    int64_t at = stride > 0 ? 0 : size - 1;
    if (begin != kNone) {
      at = from_start(begin);
      if (stride > 0 && at < 0) at = 0;
      if (stride < 0 && at > size - 1) at = size - 1;
    }
    const auto before_end = [&](int64_t position) {
      if (end == kNone) return true;
      return stride > 0 ? position < from_start(end) : position > from_start(end);
    };
    for (; at >= 0 && at < size && before_end(at); at += stride) positions.push_back(at);
    return positions;
  }

  std::string ToString(int64_t size) const {
    const auto text = [](int32_t position) {
      return position == kNone ? std::string() : absl::StrCat(position);
    };
    return absl::StrCat("[", text(begin), ":", text(end), ":", stride, "] of ", size, ": ");
  }

  // The op's attributes and inputs for a slice of dimension 0.
  void AddTo(OpTester& tester) const {
    tester.Constant(MakeVector<int32_t>({begin == kNone ? 0 : begin}));
    tester.Constant(MakeVector<int32_t>({end == kNone ? 0 : end}));
    tester.Constant(MakeVector<int32_t>({stride}));
    tester.Attr("begin_mask", begin == kNone ? 1 : 0).Attr("end_mask", end == kNone ? 1 : 0);
  }
};

constexpr int64_t kBound = 4;

std::vector<Slice> Slices() {
  // Begin and end of each kind: none, counted from the start, from the end, and beyond either end.
  return {{kNone, kNone, 2}, {1, kNone, 1},  {-2, kNone, 1}, {kNone, -1, 1}, {kNone, 2, 1},
          {1, -1, 2},        {-5, 9, 3},     {6, 9, 1},      {2, 1, 1},      {kNone, kNone, -1},
          {-2, kNone, -1},   {kNone, 1, -2}, {6, -6, -3},    {-1, -3, -1}};
}

Tensor RowsOf(const Tensor& x, const std::vector<int64_t>& positions) {
  Tensor rows = Zeros({static_cast<int64_t>(positions.size()), x.dim_size(1)});
  ForEachIndex(SizesOf(rows), [&](const Index& index) {
    At(rows, index) = At(x, {positions[index[0]], index[1]});
  });
  return rows;
}

TEST(DynamicSliceTest, TakesWhatPythonWould) {
  for (const Slice& slice : Slices()) {
    for (const int32_t size : {1, 4}) {
      const Tensor x = Padded({kBound, 2}, 0, size);
      OpTester tester("TpuExt>DynamicStridedSlice");
      tester.DynamicInput(x, 0, size);
      slice.AddTo(tester);
      ExpectSame(tester.Run(), RowsOf(x, slice.PositionsOf(size)), slice.ToString(size));
    }
  }
}

TEST(DynamicSliceTest, OfNoElementsIsEmpty) {
  for (const Slice& slice : {Slice{1, -1, 1}, {kNone, kNone, -1}, {-1, kNone, 2}}) {
    OpTester tester("TpuExt>DynamicStridedSlice");
    tester.DynamicInput(Padded({kBound, 2}, 0, 0), 0, 0);
    slice.AddTo(tester);
    ExpectSame(tester.Run(), Zeros({0, 2}), slice.ToString(0));
  }
}

TEST(DynamicSliceTest, GradientsGoBackToWhereElementsWere) {
  constexpr int32_t kSize = 3;
  for (const Slice& slice : Slices()) {
    const std::vector<int64_t> positions = slice.PositionsOf(kSize);
    // The bound of the padded gradient is the longest slice over all sizes.
    size_t bound = 0;
    for (int64_t s = 0; s <= kBound; ++s) bound = std::max(bound, slice.PositionsOf(s).size());
    const Tensor gradient =
        Padded({static_cast<int64_t>(bound), 2}, 0, static_cast<int64_t>(positions.size()));
    Tensor expected = Zeros({kSize, 2});
    for (size_t i = 0; i < positions.size(); ++i) {
      for (int64_t column = 0; column < 2; ++column) {
        At(expected, {positions[i], column}) = At(gradient, {static_cast<int64_t>(i), column});
      }
    }
    OpTester tester("TpuExt>DynamicStridedSliceGrad");
    tester.DynamicShape(Padded({kBound, 2}, 0, kSize), 0, kSize);
    slice.AddTo(tester);
    tester.DynamicInput(gradient, 0, static_cast<int32_t>(positions.size()));
    tester.Attr("Index", tensorflow::DT_INT32);
    ExpectSame(tester.Run(), expected, slice.ToString(kSize));
  }
}

TEST(DynamicSliceTest, NewAndSingleDimensionsStandWhereTheProgramPutsThem) {
  // x[tf.newaxis, 1:, ..., -1] of a tensor of shape [<=4, 3, 2].
  const int32_t size = 3;
  const Tensor x = Padded({4, 3, 2}, 0, size);
  OpTester tester("TpuExt>DynamicStridedSlice");
  tester.DynamicInput(x, 0, size);
  tester.Constant(MakeVector<int32_t>({0, 1, 0, -1}));
  tester.Constant(MakeVector<int32_t>({0, 0, 0, 0}));
  tester.Constant(MakeVector<int32_t>({1, 1, 1, 1}));
  tester.Attr("new_axis_mask", 1).Attr("end_mask", 2).Attr("ellipsis_mask", 4);
  tester.Attr("shrink_axis_mask", 8);
  Tensor expected = Zeros({1, size - 1, 3});
  ForEachIndex(SizesOf(expected), [&](const Index& index) {
    At(expected, index) = At(x, {index[1] + 1, index[2], 1});
  });
  ExpectSame(tester.Run(), expected, "x[newaxis, 1:, ..., -1]: ");
}

TEST(DynamicSliceTest, AGradientOfAnotherSizeIsAnError) {
  OpTester tester("TpuExt>DynamicStridedSliceGrad");
  tester.DynamicShape(Padded({kBound, 2}, 0, 2), 0, 2);
  Slice{1, kNone, 1}.AddTo(tester);
  tester.DynamicInput(Padded({kBound, 2}, 0, 1), 0, 1).Attr("Index", tensorflow::DT_INT32);
  const absl::Status status = tester.Compile().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("does not fit the slice"), std::string::npos) << status;
}

TEST(DynamicSliceTest, AStrideOfZeroIsAnError) {
  OpTester tester("TpuExt>DynamicStridedSlice");
  tester.DynamicInput(Padded({kBound, 2}, 0, 2), 0, 2);
  Slice{0, 2, 0}.AddTo(tester);
  EXPECT_EQ(tester.Compile().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tf_tpu_ext
