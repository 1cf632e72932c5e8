#!/usr/bin/env bash
# Fuzzes what reads text or bytes, and sequences of calls to the engine: fuzz.sh [SECONDS], 60 unless told, shared by
# the targets of tests/fuzz. Stops with the input that failed, under build/fuzz/found. Inputs that reach new code are
# kept in build/fuzz/corpus for the next time; tests/fuzz/corpus holds those to begin with. All of core is compiled for
# it, so that clang checks its lock annotations as well.
source "$(dirname "$0")/common.sh"
seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || die "fuzz.sh [SECONDS]: $seconds is no number"

clang=$(find_tool clang++)
probe='extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
mkdir -p build/fuzz/found
if [ -z "$clang" ] ||
   ! "$clang" -fsanitize=fuzzer,address,undefined -x c++ - -o build/fuzz/probe <<<"$probe" 2>build/fuzz/probe.log; then
  echo "fuzzing and lock annotations are skipped: no clang with libFuzzer (Debian: clang and libclang-rt-14-dev)"
  exit 0
fi

cmake --preset fuzz -DCMAKE_CXX_COMPILER="$clang" >build/fuzz/configure.log || { cat build/fuzz/configure.log; exit 1; }
cmake --build build/fuzz --target all fuzzers -j "$JOBS" -- --quiet

# Where there is no SQLite the queue is left out, and what reads its files.
targets=()
for source in tests/fuzz/*_fuzz.cc; do
  target=$(basename "$source" _fuzz.cc)
  [ -x "build/fuzz/tests/fuzz/${target}_fuzz" ] && targets+=("$target")
done
[ -d /dev/shm ] && export TMPDIR=/dev/shm
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/corpus/$target"
  log=build/fuzz/$target.log
  words=(-detect_leaks=0)  # not after each input, which takes most of the time: once, at the end
  [ -e "tests/fuzz/dictionaries/$target" ] && words+=("-dict=tests/fuzz/dictionaries/$target")
  "build/fuzz/tests/fuzz/${target}_fuzz" -max_total_time=$((seconds / ${#targets[@]})) -max_len=1025 -timeout=25 \
    -rss_limit_mb=4096 -print_final_stats=1 "${words[@]}" -artifact_prefix="build/fuzz/found/$target-" \
    "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1 || { tail -n 60 "$log"; exit 1; }
  echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, none failed"
done
