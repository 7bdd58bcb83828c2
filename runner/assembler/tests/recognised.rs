// SPDX-License-Identifier: Apache-2.0
//! Which accesses of a compiler's code are announced a second time: those of which its own hooks say nothing, or not in time.

/// How many announcements there are in the code of a function that a compiler made.
fn announcements(body: &str) -> usize {
    let source = format!("\t.file\t\"a.c\"\n\t.text\nf:\n{body}\tret\n");
    let text = assembler::announced(source.as_bytes()).expect("as can be run").expect("as takes the source");
    String::from_utf8(text).expect("text").matches("fl_hook_instruction").count()
}

fn hooked(call: &str, access: &str) -> usize {
    announcements(&format!("\tleaq\t8(%rbx), %rdi\n\tcall\t__tsan_{call}@PLT\n{access}"))
}

#[test]
fn an_access_whose_hook_was_called_is_not_announced_again() {
    assert_eq!(hooked("read8", "\tmovq\t8(%rbx), %rax\n"), 0);
    assert_eq!(hooked("read8", "\tmovl\t12(%rbx), %eax\n"), 0, "a part of it");
    assert_eq!(hooked("write8", "\tmovq\t%rax, 8(%rbx)\n"), 0);
    assert_eq!(hooked("write8", "\taddq\t$1, 8(%rbx)\n"), 0);
    assert_eq!(hooked("unaligned_read4", "\tmovl\t8(%rbx), %eax\n"), 0);
}

#[test]
fn an_access_without_a_hook_is_announced() {
    assert_eq!(announcements("\tmovq\t8(%rbx), %rax\n"), 1);
    assert_eq!(announcements("\tmovq\t%rax, 8(%rbx)\n"), 1);
    assert_eq!(hooked("read8", "\tmovq\t16(%rbx), %rax\n"), 1, "of other bytes");
    assert_eq!(hooked("read4", "\tmovq\t8(%rbx), %rax\n"), 1, "of more bytes");
    assert_eq!(hooked("read8", "\tmovq\t%rax, 8(%rbx)\n"), 1, "a store, though a load was announced");
    assert_eq!(hooked("read8", "\tmovq\t(%r12), %rbx\n\tmovq\t8(%rbx), %rax\n"), 2, "the register is another");
}

#[test]
fn registers_are_followed_through_copies_sums_and_spills() {
    assert_eq!(hooked("read8", "\tmovq\t%rbx, %r12\n\taddq\t$8, %r12\n\tmovq\t(%r12), %rax\n"), 0);
    let spilled = "\tleaq\t8(%rbx), %rdi\n\tmovq\t%rdi, 24(%rsp)\n\tcall\t__tsan_read8@PLT\n\tmovq\t24(%rsp), %rdx\n";
    assert_eq!(announcements(&format!("{spilled}\tmovq\t(%rdx), %rax\n")), 0);
    assert_eq!(
        announcements(&format!("{spilled}\tmovq\t%rax, 24(%rsp)\n\tmovq\t24(%rsp), %rcx\n\tmovq\t(%rcx), %rax\n")),
        1
    );
    let indexed = "\tleaq\t8(%rbx,%r12,8), %rdi\n\tcall\t__tsan_read8@PLT\n";
    assert_eq!(announcements(&format!("{indexed}\tmovq\t8(%rbx,%r12,8), %rax\n")), 0);
    assert_eq!(announcements(&format!("{indexed}\tmovq\t8(%rbx,%r12,4), %rax\n")), 1);
    let range = "\tmovl\t$56, %esi\n\tmovq\t%rbx, %rdi\n\tcall\t__tsan_read_range@PLT\n";
    assert_eq!(announcements(&format!("{range}\tmovups\t40(%rbx), %xmm0\n")), 0);
    assert_eq!(announcements(&format!("{range}\tmovups\t48(%rbx), %xmm0\n")), 1);
}

#[test]
fn what_may_lie_between_a_hook_and_its_access_ends_what_is_known() {
    assert_eq!(hooked("read8", ".L5:\n\tmovq\t8(%rbx), %rax\n"), 1, "something may jump here");
    assert_eq!(hooked("read8", ".LVL5:\n\tmovq\t8(%rbx), %rax\n"), 0, "this label only describes the code");
    assert_eq!(hooked("read8", "\tcall\tg@PLT\n\tmovq\t8(%rbx), %rax\n"), 1);
    assert_eq!(hooked("read8", "\tcall\t__tsan_write8@PLT\n\tmovq\t8(%rbx), %rax\n"), 0);
}

#[test]
fn the_stack_globals_and_tables_of_jumps_are_no_pm() {
    let text = "\tmovq\t8(%rsp), %rax\n\tleaq\t16(%rsp), %rdx\n\tmovq\t(%rdx), %rax\n\tmovq\tg(%rip), %rax\n\
                \tleaq\tt(%rip), %rdx\n\tmovslq\t(%rdx,%rax,4), %rax\n\tmovq\th@GOTPCREL(%rip), %rcx\n\tmovq\t(%rcx), %rcx\n\
                \tmovq\t%fs:40, %rax\n";
    assert_eq!(announcements(text), 0);
}

#[test]
fn a_source_that_as_refuses_is_left_to_it() {
    assert_eq!(assembler::announced(b"\tnosuchinstruction\t%rax\n").expect("as can be run"), None);
}
