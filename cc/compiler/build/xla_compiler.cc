#include "cc/compiler/build/xla_compiler.h"

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "cc/abi/xla/cpu_client.h"
#include "cc/abi/xla/library_sums.h"
#include "cc/abi/xla/mend_module.h"
#include "cc/abi/xla/serialized_code.h"
#include "cc/abi/xla/ynn_builders.h"
#include "cc/base/fault_points.h"
#include "cc/base/machine.h"
#include "cc/compiler/hlo/cut_chains.h"
#include "cc/compiler/hlo/cut_sums.h"
#include "cc/compiler/hlo/join_updates.h"
#include "cc/compiler/hlo/module.h"
#include "tsl/platform/protobuf.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/pjrt/plugin/xla_cpu/xla_cpu_pjrt_client.h"
#include "xla/service/cpu/cpu_executable.h"
#include "xla/tsl/lib/strings/proto_serialization.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

// The longest chain of ops in one kernel. A chain of 3,000 ops takes 1.6 s in kernels of 1,000, 0.6
// s in kernels of 300 and 0.4 s in kernels of 100. Chains in models are rarely that long.
constexpr int kMaxChain = 200;

// This client only compiles. cc/runtime runs the programs, and needs none of the client's buffers,
// pools and waits.
absl::StatusOr<xla::PjRtClient*> CompileClient() {
  static auto* client = new absl::StatusOr<std::unique_ptr<xla::PjRtClient>>([] {
    xla::CpuClientOptions options;
    options.cpu_device_count = GetMachineOptions().cores;
    return xla::GetXlaPjrtCpuClient(std::move(options));
  }());
  TF_RETURN_IF_ERROR(client->status());
  return (*client)->get();
}

// Everything that a computation's machine code depends on. Each text is preceded by its length, so
// that no two programs have the same key. A file is named after the key's 128-bit fingerprint.
absl::StatusOr<std::string> CacheKey(const xla::XlaComputation& computation,
                                     const xla::CompileOptions& options) {
  TF_ASSIGN_OR_RETURN(const xla::CompileOptionsProto described, options.ToProto());
  // The ID is specific to the process, and no compiled code depends on it.
  xla::HloModuleProto module = computation.proto();
  module.clear_id();
  std::string key = CompilationEnvironment();
  for (const tsl::protobuf::MessageLite* part :
       {static_cast<const tsl::protobuf::MessageLite*>(&described),
        static_cast<const tsl::protobuf::MessageLite*>(&module)}) {
    std::string bytes;
    if (!tsl::SerializeToStringDeterministic(*part, &bytes)) {
      return absl::InternalError("The program is too large to be described in 2 GB.");
    }
    absl::StrAppend(&key, bytes.size(), ":", bytes);
  }
  return key;
}

// Makes an executable that several threads may run at the same time.
std::shared_ptr<xla::Executable> ForThreads(std::shared_ptr<xla::Executable> executable) {
  auto& code = static_cast<xla::cpu::CpuExecutable&>(*executable);
  if (code.has_thunks()) SerializeYnnBuilders(code.thunks().thunk_sequence());
  return executable;
}

}  // namespace

absl::StatusOr<XlaCompiler> XlaCompiler::Create(std::string name) {
  TF_ASSIGN_OR_RETURN(xla::PjRtClient * client, CompileClient());
  return XlaCompiler(client, std::move(name), GetMachineOptions().compilation_cache);
}

absl::StatusOr<std::shared_ptr<xla::Executable>> XlaCompiler::Compile(
    std::unique_ptr<xla::HloModule> module, const xla::CompileOptions& options) {
  // XLA's partitioner would gather what is cut on every core.
  if (options.executable_build_options.num_partitions() == 1) {
    TF_RETURN_IF_ERROR(JoinUpdates(module.get()));
    if (LibraryComputesSums()) TF_RETURN_IF_ERROR(CutSums(module.get()));
    TF_RETURN_IF_ERROR(CutChains(kMaxChain, module.get()));
  }
  xla::XlaComputation computation = ToComputation(*module);
  // The cache only saves time: if it fails, the program is compiled.
  std::string key;
  if (cache_ != nullptr) {
    absl::StatusOr<std::string> described = CacheKey(computation, options);
    if (described.ok()) {
      key = *std::move(described);
      auto executable = Restore(key, options);
      if (executable.ok()) return executable;
      if (!absl::IsNotFound(executable.status())) Warn("read", executable.status());
    } else {
      Warn("look for", described.status());
    }
  }
  compiled_ = true;
  TF_ASSIGN_OR_RETURN(const bool mended, MendModule(module.get()));
  if (mended) computation = ToComputation(*module);
  // XLA's compiler makes its own copies, and the program may be large.
  module.reset();
  TF_RETURN_IF_ERROR(FaultAt(FaultPoint::kCompilation));
  TF_ASSIGN_OR_RETURN(const CompiledByClient executable,
                      CompileByClient(*client_, computation, options));
  if (!key.empty()) {
    const absl::Status written = Keep(key, executable->SerializeExecutable());
    if (!written.ok()) Warn("write", written);
  }
  return ForThreads(CpuExecutableOf(*executable));
}

absl::StatusOr<std::shared_ptr<xla::Executable>> XlaCompiler::Restore(
    const std::string& key, const xla::CompileOptions& options) {
  TF_ASSIGN_OR_RETURN(const std::string code, cache_->Read(key));
  TF_ASSIGN_OR_RETURN(const std::unique_ptr<xla::PjRtLoadedExecutable> executable,
                      client_->LoadSerializedExecutable(code, options, xla::LoadOptions()));
  return ForThreads(CpuExecutableOfLoaded(*executable));
}

absl::Status XlaCompiler::Keep(const std::string& key, absl::StatusOr<std::string> code) const {
  TF_RETURN_IF_ERROR(code.status());
  TF_ASSIGN_OR_RETURN(const std::string restorable, Restorable(*std::move(code)));
  return cache_->Write(key, restorable, GetMachineOptions().max_cache_bytes);
}

void XlaCompiler::Warn(const char* what, const absl::Status& status) const {
  LOG(WARNING) << "Can't " << what << " the machine code of TPU program " << name_
               << " in the compilation cache " << cache_->folder()
               << "; the program is compiled here: " << status.message();
}

}  // namespace tf_tpu_ext
