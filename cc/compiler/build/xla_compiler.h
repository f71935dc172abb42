// XLA's CPU compiler and its cache.
#ifndef TF_TPU_EXT_CC_COMPILER_BUILD_XLA_COMPILER_H_
#define TF_TPU_EXT_CC_COMPILER_BUILD_XLA_COMPILER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/compiler/build/compilation_cache.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/pjrt/pjrt_executable.h"
#include "xla/service/executable.h"

namespace xla {
class PjRtClient;
}  // namespace xla

namespace tf_tpu_ext {

// Compiles the computations of one program, or takes their machine code from the compilation cache
// that the machine has when compilation begins. Not thread-safe.
class XlaCompiler {
 public:
  // `name` is the program's name, for messages.
  static absl::StatusOr<XlaCompiler> Create(std::string name);

  absl::StatusOr<std::shared_ptr<xla::Executable>> Compile(std::unique_ptr<xla::HloModule> module,
                                                           const xla::CompileOptions& options);

  // Whether everything came from the cache.
  bool restored_all() const { return !compiled_; }

 private:
  XlaCompiler(xla::PjRtClient* client, std::string name,
              std::shared_ptr<const CompilationCache> cache)
      : client_(client), name_(std::move(name)), cache_(std::move(cache)) {}

  absl::StatusOr<std::shared_ptr<xla::Executable>> Restore(const std::string& key,
                                                           const xla::CompileOptions& options);
  absl::Status Keep(const std::string& key, absl::StatusOr<std::string> code) const;
  void Warn(const char* what, const absl::Status& status) const;

  xla::PjRtClient* client_;
  std::string name_;
  std::shared_ptr<const CompilationCache> cache_;  // null if there is none
  bool compiled_ = false;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_XLA_COMPILER_H_
