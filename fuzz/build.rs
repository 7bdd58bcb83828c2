// SPDX-License-Identifier: Apache-2.0
//! Compiles the runner's workload reader, instrumented, into the fuzzer.

#[cfg(not(feature = "libfuzzer"))]
fn main() {}

#[cfg(feature = "libfuzzer")]
fn main() {
    let allocators = std::path::Path::new("../allocators");
    let reader = allocators.join("runner/workload.c");
    for source in [
        "workload_reader.c".into(),
        reader.clone(),
        allocators.join("runner/links.c"),
        allocators.join("runner/runner.h"),
    ] {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    cc::Build::new()
        .file("workload_reader.c")
        .include(allocators.join("runner"))
        .include(allocators.join("include"))
        .std("gnu11")
        .flag("-fsanitize-coverage=trace-pc,trace-cmp")
        .flag("-fsanitize=undefined")
        .flag("-fsanitize-undefined-trap-on-error")
        .opt_level(1)
        .compile("workload");
}
