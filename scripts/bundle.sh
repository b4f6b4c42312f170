# Sourced by setup.sh --bundle.
# shellcheck shell=bash

# Debian's {fmt} has no static library; prints the source file that makes one.
fmt_source() {
  cat <<'SOURCE'
#include <fmt/format-inl.h>
FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API locale_ref::locale_ref(const std::locale&);
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API void buffer<char>::append(const char*, const char*);
#if FMT_VERSION < 100000
template FMT_API void vformat_to(buffer<char>&, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
#else
template FMT_API void vformat_to(buffer<char>&, string_view, typename vformat_args<>::type, locale_ref);
#endif
}  // namespace detail
FMT_END_NAMESPACE
SOURCE
}

static_fmt() {
  local folder=$1
  fmt_source >"$folder/fmt.cpp" &&
    g++ -std=c++20 -O2 -fPIE -I "$folder/include" -c "$folder/fmt.cpp" -o "$folder/fmt.o" &&
    ar rcs "$folder/lib/libfmt.a" "$folder/fmt.o" &&
    rm "$folder/fmt.cpp" "$folder/fmt.o"
}

# copy_static LIBRARY PACKAGE FOLDER: copies the static library of this name.
copy_static() {
  local archive
  archive=$(g++ -print-file-name="lib$1.a")
  [ -e "$archive" ] || die "no static $1 on this machine" "apt-get install $2"
  cp -L "$archive" "$3/"
}

# complete_crypto FOLDER: libcrypto.a there holds all that it calls, in any order of linking. Debian 13's calls zlib and
# zstd.
complete_crypto() {
  local folder=$1 calls
  calls=$(nm "$folder/libcrypto.a" 2>/dev/null)
  [[ $calls == *" U ZSTD_"* ]] || return 0
  copy_static zstd libzstd-dev "$folder"
  (cd "$folder" && ar -M <<<$'create whole.a\naddlib libcrypto.a\naddlib libz.a\naddlib libzstd.a\nsave\nend') &&
    mv "$folder/whole.a" "$folder/libcrypto.a" && rm "$folder/libzstd.a"
}

# make_bundle DIR: writes the bundle completely or not at all.
make_bundle() {
  local folder=$1 part library size
  [ ! -e "$folder" ] || [ -e "$folder/include/fmt" ] || die "$folder exists and is not a bundle" "name another folder"
  part=$folder.part
  rm -rf "$part"
  mkdir -p "$part/include" "$part/lib"
  cp -rL /usr/include/{CLI,spdlog,fmt,jemalloc,nlohmann,toml++,catch2,openssl,xxhash.h,zlib.h,zconf.h} \
    /usr/include/{png.h,pngconf.h,pnglibconf.h,jpeglib.h,jmorecfg.h,jerror.h} "$part/include/"
  # opensslconf.h and jconfig.h, which depend on the CPU.
  cp -rL "/usr/include/$(g++ -print-multiarch)"/{openssl,jconfig.h} "$part/include/"
  for library in z=zlib1g-dev png=libpng-dev jpeg=libjpeg-dev crypto=libssl-dev jemalloc_pic=libjemalloc-dev; do
    copy_static "${library%=*}" "${library#*=}" "$part/lib"
  done
  complete_crypto "$part/lib"
  library=$(g++ -print-file-name=libCatch2.a)  # of version 3; version 2 is a header
  [ ! -e "$library" ] || cp -L "$library" "$part/lib/"
  cp -rL "$debian_data" "$part/fashion-mnist"
  step "compile a static fmt" "see the compiler's message" static_fmt "$part"
  rm -rf "$folder"
  mv "$part" "$folder"
  size=$(du -sm "$folder" | cut -f1)
  say "bundle of $size MB in $folder: headers, static zlib, libpng, libjpeg, libcrypto, jemalloc and fmt, Fashion-MNIST"
}
