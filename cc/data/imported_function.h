// Points the calls that loaded libraries make to a function of another library at a replacement.
#ifndef TF_TPU_EXT_CC_DATA_IMPORTED_FUNCTION_H_
#define TF_TPU_EXT_CC_DATA_IMPORTED_FUNCTION_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tf_tpu_ext {

// A redirected function. A library calls a function of another library through an entry of its own
// import table, a pointer that the dynamic linker fills in; only those entries change, never code.
// Not thread-safe: redirect and restore from one thread at a time. Calls may go on meanwhile, each
// reaches one function or the other.
class ImportedFunction {
 public:
  // Redirects every entry for `function`, except those of the library that holds `replacement`.
  // Both need the same signature. Fails, changing nothing, where the linker does not know
  // `function` by a name, or no library loaded so far calls it by way of an import table.
  static absl::StatusOr<ImportedFunction> Redirect(void* function, void* replacement);

  // Puts the former pointers back.
  absl::Status Restore();

  // How many entries are redirected.
  int size() const { return static_cast<int>(entries_.size()); }

 private:
  struct Entry {
    void** slot = nullptr;
    void* former = nullptr;
    // The linker has made the page of the entry read-only.
    bool read_only = false;
  };

  static absl::Status Write(const Entry& entry, void* value);

  friend struct EntryFinder;
  std::vector<Entry> entries_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_IMPORTED_FUNCTION_H_
