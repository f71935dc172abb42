// For tests: creates programs from HLO text, as if lowered from the bridge's modules, and runs
// their machine code.
#ifndef TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_TESTING_H_
#define TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_TESTING_H_

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cc/base/compute_pool.h"
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/compiler/build/compilation_cache.h"
#include "cc/compiler/build/xla_build.h"
#include "cc/compiler/hlo/module.h"
#include "cc/compiler/hlo/test_module.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/program/compilation_record.h"
#include "cc/program/compiled_program.h"
#include "gtest/gtest.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"
#include "xla/client/client_library.h"
#include "xla/client/local_client.h"
#include "xla/executable_run_options.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/literal.h"
#include "xla/literal_util.h"
#include "xla/service/backend.h"
#include "xla/service/executable.h"
#include "xla/service/service_executable_run_options.h"
#include "xla/service/shaped_buffer.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {

// What the compiler needs from a process. Lives as long as the test program.
struct CompilerProcess {
  static CompilerProcess& Get() {
    static auto* const made = [] {
      auto* objects = new CompilerProcess;
      objects->process.machine = &objects->machine;
      objects->process.compute_pool = &objects->compute_pool;
      Process::Install(&objects->process);
      return objects;
    }();
    return *made;
  }

  // A machine with two processors.
  struct TwoThreads : ComputePool {
    int NumThreads() const override { return 2; }
  };

  Machine machine;
  TwoThreads compute_pool;
  Process process;
};

// An empty folder that is the machine's compilation cache during this object's lifetime.
class TestCache {
 public:
  TestCache() : folder_(absl::StrCat(::testing::TempDir(), "/compilation_cache_", getpid())) {
    RemoveFolder();
    Use(*CompilationCache::Open(folder_));
  }
  ~TestCache() {
    Use(nullptr);
    RemoveFolder();
  }

  const std::string& folder() const { return folder_; }

  void RemoveFolder() const {
    int64_t files, folders;
    tensorflow::Env::Default()->DeleteRecursively(folder_, &files, &folders).IgnoreError();
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    EXPECT_TRUE(tensorflow::Env::Default()->GetChildren(folder_, &names).ok());
    return names;
  }

  static void Use(std::shared_ptr<const CompilationCache> cache) {
    MachineOptions options = CompilerProcess::Get().machine.options();
    options.compilation_cache = std::move(cache);
    EXPECT_TRUE(CompilerProcess::Get().machine.SetOptions(options).ok());
  }

 private:
  const std::string folder_;
};

// A program of `replicas` replicas whose parameters are its arguments and whose root is a tuple of
// its outputs.
struct TestProgram {
  TestProgram(absl::string_view hlo, int replicas) {
    CompilerProcess::Get();
    const std::unique_ptr<xla::HloModule> module = ParseModule(hlo);
    metadata.set_num_replicas(replicas);
    metadata.set_num_cores_per_replica(1);
    for (const xla::HloInstruction* parameter :
         module->entry_computation()->parameter_instructions()) {
      auto* argument = metadata.add_args();
      argument->set_kind(tensorflow::tpu::TPUCompileMetadataProto::Arg::PARAMETER);
      argument->set_dtype(TypeOf(parameter->shape()));
      lowered.result.input_mapping.push_back(static_cast<int>(parameter->parameter_number()));
    }
    for (const xla::Shape& shape : module->result_shape().tuple_shapes()) {
      tensorflow::XlaOutputDescription output;
      output.type = TypeOf(shape);
      output.is_constant = false;
      lowered.result.outputs.push_back(output);
      metadata.add_retvals();
    }
    lowered.result.computation = std::make_shared<xla::XlaComputation>(ToComputation(*module));
  }

  static tensorflow::DataType TypeOf(const xla::Shape& shape) {
    return *tensorflow::EncodePrimitiveTypeAsDataType(shape.element_type());
  }

  absl::StatusOr<std::shared_ptr<const CompiledProgram>> Build() {
    return BuildProgram(lowered, metadata, /*id=*/7, &record);
  }

  LoweredModule lowered;
  tensorflow::tpu::TPUCompileMetadataProto metadata;
  CompilationRecord record;
};

// Runs the machine code once. Returns the results in order.
inline absl::StatusOr<std::vector<xla::Literal>> RunCode(
    xla::Executable& executable, const std::vector<xla::Literal>& arguments) {
  xla::LocalClient* client = xla::ClientLibrary::LocalClientOrDie();
  xla::Backend* backend = client->mutable_backend();
  std::vector<xla::ScopedShapedBuffer> buffers;
  for (const xla::Literal& argument : arguments) {
    TF_ASSIGN_OR_RETURN(xla::ScopedShapedBuffer buffer,
                        client->LiteralToShapedBuffer(argument, /*device_ordinal=*/0));
    buffers.push_back(std::move(buffer));
  }
  std::vector<const xla::ShapedBuffer*> pointers;
  for (const xla::ScopedShapedBuffer& buffer : buffers) pointers.push_back(&buffer);
  TF_ASSIGN_OR_RETURN(xla::StreamPool::Ptr stream, backend->BorrowStream(/*device_ordinal=*/0));
  xla::ExecutableRunOptions options;
  options.set_stream(stream.get());
  options.set_allocator(backend->memory_allocator());
  options.set_intra_op_thread_pool(backend->eigen_intra_op_thread_pool_device());
  const xla::ServiceExecutableRunOptions run_options(options);
  TF_ASSIGN_OR_RETURN(xla::ScopedShapedBuffer results,
                      executable.ExecuteOnStreamWrapper(&run_options, pointers));
  TF_RETURN_IF_ERROR(stream->BlockHostUntilDone());
  TF_ASSIGN_OR_RETURN(xla::Literal literal, client->ShapedBufferToLiteral(results));
  return literal.DecomposeTuple();
}

// Numbers that differ by position and seed. Sums and products of a few of them are exact.
inline std::vector<float> Numbers(int count, int seed) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back((seed * 31 + i * 7 + i * i) % 23 - 11);
  return numbers;
}

inline xla::Literal Vector(const std::vector<float>& values) {
  return xla::LiteralUtil::CreateR1<float>(values);
}

inline xla::Literal Matrix(const std::vector<float>& values, int rows) {
  return *Vector(values).Reshape({rows, static_cast<int64_t>(values.size()) / rows});
}

inline std::vector<float> ValuesOf(const xla::Literal& literal) {
  const auto values = literal.data<float>();
  return std::vector<float>(values.begin(), values.end());
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_TESTING_H_
