#include "cc/kernels/make_program.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "cc/base/process.h"
#include "cc/compiler/build/xla_build.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {

absl::StatusOr<std::shared_ptr<Program>> MakeProgram(
    const LoweredModule& lowered, const tensorflow::tpu::TPUCompileMetadataProto& metadata,
    int64_t id, CompilationRecord* record) {
  const absl::Time start = absl::Now();
  const auto note_time = absl::MakeCleanup([&] { record->building = absl::Now() - start; });
  TF_ASSIGN_OR_RETURN(std::shared_ptr<const CompiledProgram> compiled,
                      BuildProgram(lowered, metadata, id, record));
  record->bytes = SizeInMemory(*compiled);
  return Program::Create(*Process::Get().program_services, std::move(compiled));
}

}  // namespace tf_tpu_ext
