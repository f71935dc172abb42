// Compares ops on tensors of dynamic size with stock ops on tensors of that size without padding.
// The padding holds values that would show in every result.
#include <algorithm>
#include <cstdint>
#include <functional>
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
using tensorflow::TensorShape;

// Compares the override of `op` with the stock op for every size of one dimension of the first
// input. `finish` adds the other inputs and the attributes.
void CompareAllSizes(const std::string& op, const TensorShape& shape, int dimension,
                     const std::function<void(OpTester&)>& finish, int smallest = 1) {
  for (int size = smallest; size <= shape.dim_size(dimension); ++size) {
    const Tensor padded = Padded(shape, dimension, size);
    OpTester with_padding("TpuExt>Dynamic" + op), without(op);
    with_padding.DynamicInput(padded, dimension, size);
    without.Input(Cut(padded, dimension, size));
    finish(with_padding);
    finish(without);
    ExpectSame(with_padding.Run(), without.Run(), absl::StrCat(op, " of size ", size, ": "));
  }
}

TEST(DynamicKernelsTest, Scans) {
  for (const char* op : {"Cumsum", "Cumprod"}) {
    for (int axis : {0, -1}) {
      for (bool reverse : {false, true}) {
        const auto finish = [=](OpTester& tester) {
          tester.Constant(MakeScalar<int32_t>(axis)).Attr("reverse", reverse);
          tester.Attr("exclusive", reverse);
        };
        CompareAllSizes(op, {4, 3}, 0, finish, /*smallest=*/2);
      }
    }
  }
  CompareAllSizes("CumulativeLogsumexp", {4}, 0,
                  [](OpTester& tester) { tester.Constant(MakeScalar<int32_t>(0)); });
}

TEST(DynamicKernelsTest, OnesLikeHasOnesOfThatSize) {
  CompareAllSizes("OnesLike", {2, 3}, 1, [](OpTester&) {});
}

TEST(DynamicKernelsTest, RollWrapsAtTheRealEnd) {
  for (int32_t shift : {0, 1, -2, 7}) {
    CompareAllSizes("Roll", {4, 2}, 0, [=](OpTester& tester) {
      tester.Input(MakeScalar<int32_t>(shift)).Constant(MakeScalar<int32_t>(0));
    });
  }
  // An axis of static size next to one of dynamic size.
  CompareAllSizes("Roll", {3, 4}, 0, [](OpTester& tester) {
    tester.Input(MakeScalar<int32_t>(1)).Constant(MakeScalar<int32_t>(-1));
  });
}

TEST(DynamicKernelsTest, MirrorPadMirrorsAtTheRealEnd) {
  for (const char* mode : {"REFLECT", "SYMMETRIC"}) {
    CompareAllSizes(
        "MirrorPad", {5, 2}, 0,
        [=](OpTester& tester) {
          tester.Constant(MakeTensor<int32_t>({1, 2, 0, 0}, {2, 2})).Attr("mode", mode);
        },
        /*smallest=*/3);
  }
}

TEST(DynamicKernelsTest, StridedSliceCountsFromTheRealEnd) {
  struct Case {
    int32_t begin, end, stride;
    int begin_mask, end_mask, shrink_mask;
  };
  for (const Case& c : {Case{1, -1, 1, 0, 0, 0},
                        {-2, 0, 1, 0, 1, 0},
                        {0, 0, -1, 1, 1, 0},
                        {-1, 0, -2, 0, 1, 0},
                        {0, 3, 2, 0, 0, 0},
                        {-1, 0, 1, 0, 0, 1}}) {
    const auto finish = [&](OpTester& tester) {
      tester.Constant(MakeVector<int32_t>({c.begin})).Constant(MakeVector<int32_t>({c.end}));
      tester.Constant(MakeVector<int32_t>({c.stride})).Attr("begin_mask", c.begin_mask);
      tester.Attr("end_mask", c.end_mask).Attr("shrink_axis_mask", c.shrink_mask);
    };
    CompareAllSizes("StridedSlice", {5, 2}, 0, finish, /*smallest=*/3);
  }
}

TEST(DynamicKernelsTest, StridedSliceGradPutsElementsBack) {
  for (int32_t size = 2; size <= 4; ++size) {
    for (int32_t stride : {1, 2, -1}) {
      // The slice [1:-1:stride], or [-2::-1].
      const int32_t begin = stride > 0 ? 1 : -2, end = stride > 0 ? -1 : 0;
      const int end_mask = stride > 0 ? 0 : 1;
      const auto count = [&](int32_t real) {
        return stride < 0 ? std::max(real - 1, 0) : (std::max(real - 2, 0) + stride - 1) / stride;
      };
      // With a stride, the stock kernel gives an empty gradient the wrong shape.
      if (count(size) == 0) continue;
      const Tensor like = Padded({4, 2}, 0, size);
      const Tensor gradient = Padded({count(4), 2}, 0, count(size));
      const auto finish = [&](OpTester& tester) {
        tester.Attr("end_mask", end_mask).Attr("Index", tensorflow::DT_INT32);
      };
      const Tensor starts = MakeVector<int32_t>({begin}), ends = MakeVector<int32_t>({end});
      const Tensor strides = MakeVector<int32_t>({stride});
      OpTester with_padding("TpuExt>DynamicStridedSliceGrad"), without("StridedSliceGrad");
      with_padding.DynamicShape(like, 0, size).Constant(starts).Constant(ends).Constant(strides);
      with_padding.DynamicInput(gradient, 0, count(size));
      without.Constant(MakeVector<int32_t>({size, 2})).Constant(starts).Constant(ends);
      without.Constant(strides).Input(Cut(gradient, 0, count(size)));
      finish(with_padding);
      finish(without);
      ExpectSame(with_padding.Run(), without.Run(),
                 absl::StrCat("size ", size, " stride ", stride, ": "));
    }
  }
}

void AddPool(OpTester& tester, const char* padding) {
  tester.Attr("ksize", std::vector<int>{1, 2, 3, 1}).Attr("strides", std::vector<int>{1, 2, 1, 1});
  tester.Attr("padding", padding);
}

TEST(DynamicKernelsTest, AveragePoolsLeavePaddingOut) {
  for (const char* padding : {"SAME", "VALID"}) {
    for (int dimension : {0, 1, 2}) {
      CompareAllSizes(
          "AvgPool", {2, 5, 4, 1}, dimension, [=](OpTester& tester) { AddPool(tester, padding); },
          /*smallest=*/dimension == 0 ? 1 : 3);
    }
  }
}

TEST(DynamicKernelsTest, GradientsOfAveragePools) {
  for (const char* padding : {"SAME", "VALID"}) {
    const bool same = std::string(padding) == "SAME";
    for (int32_t size = 2; size <= 5; ++size) {
      const auto rows = [&](int32_t real) { return same ? (real + 1) / 2 : (real - 2) / 2 + 1; };
      const int columns = same ? 4 : 2;
      const Tensor like = Padded({1, 5, 4, 1}, 1, size);
      const Tensor gradient = Padded({1, rows(5), columns, 1}, 1, rows(size));
      OpTester with_padding("TpuExt>DynamicAvgPoolGrad"), without("AvgPoolGrad");
      with_padding.DynamicShape(like, 1, size).DynamicInput(gradient, 1, rows(size));
      without.Constant(MakeVector<int32_t>({1, size, 4, 1})).Input(Cut(gradient, 1, rows(size)));
      AddPool(with_padding, padding);
      AddPool(without, padding);
      ExpectSame(with_padding.Run(), without.Run(), absl::StrCat(padding, " size ", size, ": "));
    }
  }
}

TEST(DynamicKernelsTest, WhereFindsRealElementsOnly) {
  for (int32_t size = 1; size <= 4; ++size) {
    const Tensor padded = Padded({4, 3}, 0, size);
    const auto found = OpTester("TpuExt>DynamicWhere").DynamicInput(padded, 0, size).Run();
    ASSERT_TRUE(found.ok()) << found.status();
    std::vector<int64_t> expected;
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j < 3; ++j) {
        if (padded.matrix<float>()(i, j) != 0) expected.insert(expected.end(), {i, j});
      }
    }
    EXPECT_EQ(ValuesOf<int64_t>(*found), expected) << size;
  }
}

TEST(DynamicKernelsTest, StaticInputsGoToTheStockKernel) {
  const Tensor x = Padded({3, 2}, 0, 3);
  const auto finish = [&](OpTester& tester) { tester.Input(x).Constant(MakeScalar<int32_t>(0)); };
  OpTester override_op("TpuExt>DynamicCumsum"), stock("Cumsum");
  finish(override_op);
  finish(stock);
  ExpectSame(override_op.Run(), stock.Run(), "static: ");
}

TEST(DynamicKernelsTest, WhatNoKernelGetsRightIsAnError) {
  absl::Status status = OpTester("TpuExt>DynamicMatrixDiag")
                            .DynamicInput(Padded({2, 3}, 1, 2), 1, 2)
                            .Compile()
                            .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("MatrixDiag the_op cannot take an input whose dimension 1 has a "
                                  "size known only at run time"),
            std::string::npos)
      << status;
  // The batch dimension of matrices may have any size.
  EXPECT_TRUE(
      OpTester("TpuExt>DynamicMatrixDiag").DynamicInput(Padded({2, 3}, 0, 1), 0, 1).Compile().ok());
  status =
      OpTester("TpuExt>DynamicUnique").DynamicInput(Padded({4}, 0, 2), 0, 2).Compile().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(DynamicKernelsTest, WrongArgumentsAreErrors) {
  EXPECT_EQ(OpTester("TpuExt>DynamicCumsum")
                .DynamicInput(Padded({4}, 0, 2), 0, 2)
                .Constant(MakeScalar<int32_t>(1))
                .Compile()
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpTester("TpuExt>DynamicMirrorPad")
                .DynamicInput(Padded({4}, 0, 2), 0, 2)
                .Constant(MakeTensor<int32_t>({4, 0}, {1, 2}))
                .Attr("mode", "REFLECT")
                .Compile()
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  OpTester pool("TpuExt>DynamicAvgPool");
  pool.DynamicInput(Padded({1, 1, 4, 1}, 2, 2), 2, 2);
  AddPool(pool, "VALID");
  EXPECT_NE(pool.Compile().status().message().find("a window has 2 and moves by 2"),
            std::string::npos);
}

}  // namespace
}  // namespace tf_tpu_ext
