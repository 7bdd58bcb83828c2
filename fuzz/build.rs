// SPDX-License-Identifier: Apache-2.0
//! Compiles the runner's workload reader, instrumented, into the fuzzer.

#[cfg(not(feature = "libfuzzer"))]
fn main() {}

#[cfg(feature = "libfuzzer")]
fn main() {
    let root = std::path::Path::new("..");
    let runner = root.join("runner");
    for source in [
        "workload_reader.c".into(),
        runner.join("workload/workload.c"),
        runner.join("workload/links.c"),
        runner.join("workload/operations.c"),
        runner.join("workload/operations.h"),
        runner.join("workload/workload.h"),
    ] {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    cc::Build::new()
        .file("workload_reader.c")
        .include(runner)
        .include(root.join("include"))
        .include(root.join("pintools"))
        .std("gnu11")
        .flag("-fsanitize-coverage=trace-pc,trace-cmp")
        .flag("-fsanitize=undefined")
        .flag("-fsanitize-undefined-trap-on-error")
        .opt_level(1)
        .compile("workload");
}
