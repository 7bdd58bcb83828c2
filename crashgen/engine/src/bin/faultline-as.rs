// SPDX-License-Identifier: Apache-2.0
//! The assembler of builds with hooks (`runner/assembler`), for compilers to find by `-B`.

fn main() -> std::process::ExitCode {
    assembler::main()
}
