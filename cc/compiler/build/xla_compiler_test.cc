// Compares a module's machine code, compiled or from the cache, with a plain loop.
#include "cc/compiler/build/xla_compiler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/barrier.h"
#include "cc/abi/xla/library_sums.h"
#include "cc/base/machine.h"
#include "cc/compiler/build/compilation_cache.h"
#include "cc/compiler/build/program_testing.h"
#include "cc/compiler/hlo/test_module.h"
#include "tensorflow/core/platform/env.h"
#include "xla/literal.h"
#include "xla/pjrt/pjrt_executable.h"
#include "xla/service/executable.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Env;

constexpr char kScaledSum[] = R"(
HloModule scaled_sum
ENTRY entry {
  x = f32[5] parameter(0)
  y = f32[5] parameter(1)
  factor = f32[] constant(3)
  factors = f32[5] broadcast(factor), dimensions={}
  scaled = f32[5] multiply(x, factors)
  sum = f32[5] add(scaled, y)
  ROOT all = (f32[5]) tuple(sum)
})";

constexpr char kSum[] = R"(
HloModule sum
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT sum = f32[] add(x, y)
}
ENTRY entry {
  x = f32[100000] parameter(0)
  zero = f32[] constant(0)
  sum = f32[] reduce(x, zero), dimensions={0}, to_apply=add
  ROOT all = (f32[]) tuple(sum)
})";

xla::CompileOptions Options() {
  xla::CompileOptions options;
  options.compile_portable_executable = true;
  return options;
}

class XlaCompilerTest : public ::testing::Test {
 protected:
  // Compiles the text, checks that the code computes 3 x + y, and returns whether it came from the
  // cache.
  static bool IsRestored(const std::string& hlo = kScaledSum,
                         const xla::CompileOptions& options = Options()) {
    absl::StatusOr<XlaCompiler> compiler = XlaCompiler::Create("program");
    EXPECT_TRUE(compiler.ok()) << compiler.status();
    auto executable = compiler->Compile(ParseModule(hlo), options);
    EXPECT_TRUE(executable.ok()) << executable.status();
    if (!executable.ok()) return false;
    const std::vector<float> x = Numbers(5, 1), y = Numbers(5, 2);
    std::vector<xla::Literal> arguments;
    arguments.push_back(Vector(x));
    arguments.push_back(Vector(y));
    const auto results = RunCode(**executable, arguments);
    EXPECT_TRUE(results.ok()) << results.status();
    if (!results.ok()) return false;
    const std::vector<float> sum = ValuesOf((*results)[0]);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(sum[i], 3 * x[i] + y[i]) << i;
    return compiler->restored_all();
  }

  const TestCache cache_;
};

TEST_F(XlaCompilerTest, TakesTheCodeOfAnEqualProgramFromTheCache) {
  EXPECT_FALSE(IsRestored());
  EXPECT_EQ(cache_.Files().size(), 1u);
  EXPECT_TRUE(IsRestored());
  EXPECT_EQ(cache_.Files().size(), 1u);
}

TEST_F(XlaCompilerTest, WithoutACacheCompilesEachTime) {
  TestCache::Use(nullptr);
  EXPECT_FALSE(IsRestored());
  EXPECT_FALSE(IsRestored());
  EXPECT_TRUE(cache_.Files().empty());
}

TEST_F(XlaCompilerTest, AnotherProgramIsCompiled) {
  EXPECT_FALSE(IsRestored());
  std::string other = kScaledSum;
  other.replace(other.find("add(scaled, y)"), 14, "add(y, scaled)");
  EXPECT_FALSE(IsRestored(other));
  EXPECT_EQ(cache_.Files().size(), 2u);
}

TEST_F(XlaCompilerTest, OtherOptionsAreCompiledFor) {
  EXPECT_FALSE(IsRestored());
  xla::CompileOptions options = Options();
  options.executable_build_options.mutable_debug_options()->add_xla_disable_hlo_passes("dce");
  EXPECT_FALSE(IsRestored(kScaledSum, options));
  EXPECT_TRUE(IsRestored(kScaledSum, options));
}

TEST_F(XlaCompilerTest, ReplacesADamagedFile) {
  EXPECT_FALSE(IsRestored());
  const std::string path = absl::StrCat(cache_.folder(), "/", cache_.Files().at(0));
  std::string code;
  ASSERT_TRUE(tensorflow::ReadFileToString(Env::Default(), path, &code).ok());
  code[code.size() / 2] ^= 1;
  ASSERT_TRUE(tensorflow::WriteStringToFile(Env::Default(), path, code).ok());
  EXPECT_FALSE(IsRestored());
  EXPECT_TRUE(IsRestored());
}

TEST_F(XlaCompilerTest, ReplacesWhatIsWholeButNoMachineCode) {
  EXPECT_FALSE(IsRestored());
  const std::string path = absl::StrCat(cache_.folder(), "/", cache_.Files().at(0));
  // The cache's own format, under the name of the program's key.
  const auto other = *CompilationCache::Open(absl::StrCat(cache_.folder(), "/other"));
  ASSERT_TRUE(other->Write("key", "no machine code", kMaxBytes).ok());
  std::vector<std::string> written;
  ASSERT_TRUE(Env::Default()->GetChildren(other->folder(), &written).ok());
  ASSERT_TRUE(
      Env::Default()->RenameFile(absl::StrCat(other->folder(), "/", written.at(0)), path).ok());
  EXPECT_FALSE(IsRestored());
  EXPECT_TRUE(IsRestored());
}

TEST_F(XlaCompilerTest, CompilesAlsoIfTheFolderIsGone) {
  cache_.RemoveFolder();
  EXPECT_FALSE(IsRestored());
}

TEST_F(XlaCompilerTest, OneProgramOfSeveralThatIsCompiledIsNotRestored) {
  EXPECT_FALSE(IsRestored());
  absl::StatusOr<XlaCompiler> compiler = XlaCompiler::Create("program");
  ASSERT_TRUE(compiler.ok());
  ASSERT_TRUE(compiler->Compile(ParseModule(kScaledSum), Options()).ok());
  EXPECT_TRUE(compiler->restored_all());
  ASSERT_TRUE(compiler
                  ->Compile(ParseModule("HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n"
                                        "  ROOT r = (f32[2]) tuple(x)\n}"),
                            Options())
                  .ok());
  EXPECT_FALSE(compiler->restored_all());
}

TEST_F(XlaCompilerTest, WhatXlaDoesNotCompileIsItsErrorAndNotKept) {
  absl::StatusOr<XlaCompiler> compiler = XlaCompiler::Create("program");
  ASSERT_TRUE(compiler.ok());
  const absl::Status status =
      compiler
          ->Compile(ParseModule("HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n"
                                "  y = f32[2] custom-call(x), custom_call_target=\"nobody's\", "
                                "api_version=API_VERSION_TYPED_FFI\n"
                                "  ROOT r = (f32[2]) tuple(y)\n}"),
                    Options())
          .status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("nobody's"), std::string::npos) << status;
  EXPECT_TRUE(cache_.Files().empty());
}

// A chain much longer than kMaxChain is compiled in several parts.
TEST_F(XlaCompilerTest, LongChainsComputeTheSame) {
  TestCache::Use(nullptr);
  std::string body = "  x0 = f32[8] parameter(0)\n  y = f32[8] parameter(1)\n";
  constexpr int kLength = 700;
  for (int i = 1; i <= kLength; ++i) {
    absl::StrAppend(&body, "  x", i, " = f32[8] ", i % 2 ? "add" : "subtract", "(x", i - 1,
                    ", y)\n");
  }
  absl::StatusOr<XlaCompiler> compiler = XlaCompiler::Create("program");
  ASSERT_TRUE(compiler.ok());
  auto executable = compiler->Compile(
      ParseModule(absl::StrCat("HloModule m\nENTRY e {\n", body, "  ROOT r = (f32[8]) tuple(x",
                               kLength - 1, ")\n}")),
      Options());
  ASSERT_TRUE(executable.ok()) << executable.status();
  const std::vector<float> x = Numbers(8, 1), y = Numbers(8, 2);
  std::vector<xla::Literal> arguments;
  arguments.push_back(Vector(x));
  arguments.push_back(Vector(y));
  const auto results = RunCode(**executable, arguments);
  ASSERT_TRUE(results.ok()) << results.status();
  const std::vector<float> result = ValuesOf((*results)[0]);
  // There is one more addition than subtractions.
  for (int i = 0; i < 8; ++i) EXPECT_EQ(result[i], x[i] + y[i]) << i;
}

// A cut leaves this sum of squares to the library, if there is one.
TEST_F(XlaCompilerTest, SumsProductsOverSeveralDimensions) {
  constexpr char kSquares[] = R"(
HloModule squares
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT sum = f32[] add(x, y)
}
ENTRY entry {
  x = f32[1048576] parameter(0)
  images = f32[64,64,256] reshape(x)
  squares = f32[64,64,256] multiply(images, images)
  zero = f32[] constant(0)
  sums = f32[256] reduce(squares, zero), dimensions={0,1}, to_apply=add
  ROOT all = (f32[256]) tuple(sums)
})";
  absl::StatusOr<XlaCompiler> compiler = XlaCompiler::Create("program");
  ASSERT_TRUE(compiler.ok());
  const auto executable = compiler->Compile(ParseModule(kSquares), Options());
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_EQ(absl::StrContains((*executable)->module().ToString(), "ynn_fusion"),
            LibraryComputesSums());
  std::vector<float> x = Numbers(1 << 20, 1);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  x[4] = -std::numeric_limits<float>::infinity();
  std::vector<xla::Literal> arguments;
  arguments.push_back(Vector(x));
  const auto results = RunCode(**executable, arguments);
  ASSERT_TRUE(results.ok()) << results.status();
  const std::vector<float> sums = ValuesOf((*results)[0]);
  EXPECT_TRUE(std::isnan(sums[3]));
  EXPECT_EQ(sums[4], std::numeric_limits<float>::infinity());
  for (int column = 5; column < 256; ++column) {
    double expected = 0;
    for (int row = 0; row < 4096; ++row) {
      const double number = x[row * 256 + column];
      expected += number * number;
    }
    EXPECT_NEAR(sums[column], expected, 1e-5 * expected) << column;
  }
}

// XLA in TensorFlow 2.21 passes a large sum that starts with a constant to YNNPACK. Each run that
// begins while others are in progress builds its own graph.
TEST_F(XlaCompilerTest, FirstRunsMayBeginTogether) {
  TestCache::Use(nullptr);
  constexpr int kPrograms = 100, kThreads = 4, kSize = 100000;
  const std::vector<float> x(kSize, 0.5f);
  for (int i = 0; i < kPrograms; ++i) {
    absl::StatusOr<XlaCompiler> compiler = XlaCompiler::Create("program");
    ASSERT_TRUE(compiler.ok());
    const auto executable = compiler->Compile(ParseModule(kSum), Options());
    ASSERT_TRUE(executable.ok()) << executable.status();
    absl::Barrier* const barrier = new absl::Barrier(kThreads);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&] {
        std::vector<xla::Literal> arguments;
        arguments.push_back(Vector(x));
        if (barrier->Block()) delete barrier;
        const auto results = RunCode(**executable, arguments);
        ASSERT_TRUE(results.ok()) << results.status();
        EXPECT_EQ((*results)[0].Get<float>({}), kSize / 2);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace tf_tpu_ext
