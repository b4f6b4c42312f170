// Only in builds with AddressSanitizer. fontconfig, which cairo uses, keeps memory until the process ends.
// LeakSanitizer must not report it. The sanitizer looks for these names.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
const char* __lsan_default_suppressions() { return "leak:libfontconfig\n"; }
const char* __lsan_default_options() { return "print_suppressions=0"; }
}
// NOLINTEND(bugprone-reserved-identifier)
