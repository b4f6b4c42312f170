// Only in builds with AddressSanitizer. fontconfig, which finds cairo's fonts, keeps what it has found until
// the process ends; that is no leak of ours.
// The sanitizer looks for these names.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
const char* __lsan_default_suppressions() { return "leak:libfontconfig\n"; }
const char* __lsan_default_options() { return "print_suppressions=0"; }
}
// NOLINTEND(bugprone-reserved-identifier)
