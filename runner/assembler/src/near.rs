// SPDX-License-Identifier: Apache-2.0
//! In front of each call of the compiler's hook of a plain load or store: the question that the hook begins with, whether the address
//! is near PM at all (`fl_hook_near`, `runner/loads/loads.h`). Most are not, and those cost no call: recoveries with hooks are half again as
//! fast. At a call the compiler expects all registers that are used here to change.

use std::fmt::Write as _;

const SIZES: [&str; 5] = ["1", "2", "4", "8", "16"];

/// The call with the question; none: it is another one.
pub fn asked(body: &str, number: usize) -> Option<String> {
    let (mnemonic, target) = body.trim().split_once('\t')?;
    if !matches!(mnemonic, "call" | "callq") || !is_plain(target) {
        return None;
    }
    let mut text = String::new();
    let _ = write!(
        text,
        "movq\tfl_hook_near@GOTPCREL(%rip), %rax\n\tmovq\t%rdi, %rcx\n\tsubq\t(%rax), %rcx\n\tcmpq\t8(%rax), %rcx\n\
         \tjae\t.Lfl_{number}_far\n\tcall\t{target}\n.Lfl_{number}_far:"
    );
    Some(text)
}

fn is_plain(target: &str) -> bool {
    let Some(name) = target.strip_prefix("__tsan_").and_then(|rest| rest.strip_suffix("@PLT")) else { return false };
    let name = name.strip_prefix("unaligned_").or(name.strip_prefix("volatile_")).unwrap_or(name);
    let size = name.strip_prefix("read").or(name.strip_prefix("write"));
    size.is_some_and(|size| SIZES.contains(&size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_accesses_are_asked_about() {
        for call in ["call\t__tsan_read8@PLT", "callq\t__tsan_unaligned_write16@PLT", "call\t__tsan_volatile_read1@PLT"]
        {
            assert!(asked(call, 1).expect(call).contains("jae\t.Lfl_1_far"));
        }
        for call in
            ["call\t__tsan_read_range@PLT", "call\t__tsan_atomic64_load@PLT", "jmp\t__tsan_read8@PLT", "call\tf"]
        {
            assert_eq!(asked(call, 1), None);
        }
    }
}
