// Redirects calls that loaded libraries make to a function of another library.
#ifndef TF_TPU_EXT_CC_DATA_IMPORTED_FUNCTION_H_
#define TF_TPU_EXT_CC_DATA_IMPORTED_FUNCTION_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tf_tpu_ext {

// A redirected function. A library calls a function of another library through an entry in its own
// import table, a pointer that the dynamic linker fills in; only these entries change, never code.
// Not thread-safe: redirect and restore from one thread at a time. Calls may continue in the
// meantime; each reaches one function or the other.
class ImportedFunction {
 public:
  // Redirects every entry for `function`, except those of the library that holds `replacement`.
  // Both must have the same signature. Fails, changing nothing, if the linker does not know
  // `function` by name, or if no library loaded so far calls it through an import table.
  static absl::StatusOr<ImportedFunction> Redirect(void* function, void* replacement);

  // Restores the former pointers.
  absl::Status Restore();

  // How many entries are redirected.
  int size() const { return static_cast<int>(entries_.size()); }

 private:
  struct Entry {
    void** slot = nullptr;
    void* former = nullptr;
    // Whether the linker has made the entry's page read-only.
    bool read_only = false;
  };

  static absl::Status Write(const Entry& entry, void* value);

  friend struct EntryFinder;
  std::vector<Entry> entries_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_IMPORTED_FUNCTION_H_
