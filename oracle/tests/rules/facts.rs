// SPDX-License-Identifier: Apache-2.0
//! What findings are told apart by.

use crate::common::*;
use oracle::Status;
use oracle::report::Stage;

#[test]
fn the_allocators_own_words_are_in_the_message_and_in_no_fact() {
    let judgement = |words| {
        let probe = Probe { message: Some(words), ..refused(Status::Corrupt) };
        judged(&contract(), &Script::created(), &probe, &Heap::default().memory())
    };
    let (one, other) = (judgement("the heap has damaged headers"), judgement("some headers of the heap are damaged"));
    assert_ne!(one.violations[0].message, other.violations[0].message);
    assert_eq!(facts(&one), ["answered recovery/open status-3"]);
    assert_eq!(facts(&other), facts(&one));
}

#[test]
fn what_answers_and_with_which_code_are_facts() {
    let (script, heap) = two_objects();
    let fact = |bend: &dyn Fn(&mut Probe)| {
        let mut probe = heap.probe();
        bend(&mut probe);
        facts(&judged(&contract(), &script, &probe, &heap.memory())).join(", ")
    };
    assert_eq!(fact(&|probe| probe.check[0] = Some(Status::Corrupt)), "answered recovery/check status-3");
    assert_eq!(fact(&|probe| probe.check[0] = Some(Status::Error)), "answered recovery/check status-5");
    assert_eq!(fact(&|probe| probe.check[2] = Some(Status::Error)), "answered second-recovery/check status-5");
    assert_eq!(fact(&|probe| probe.close[3] = Some(Status::Error)), "answered use/close status-5");
    assert_eq!(fact(&|probe| probe.free_all = Some(Status::Error)), "answered use/free-all status-5");
    let unreadable = |probe: &mut Probe| {
        probe.contents_status.insert((3, Stage::Drain), Status::Error);
        probe.contents.insert((3, Stage::Drain), vec![]);
    };
    assert_eq!(fact(&unreadable), "answered use/contents-after-drain status-5");
}

#[test]
fn what_is_wrong_with_an_object_is_a_fact() {
    let fact =
        |script: &Script, heap: &Heap| facts(&judged(&contract(), script, &heap.probe(), &heap.memory())).join(", ");
    let (script, heap) = two_objects();
    let mut without = heap.clone();
    without.objects.remove(&3);
    assert_eq!(fact(&script, &without), "null slot");
    assert_eq!(fact(&script.clone().freed(3), &heap), "set-again slot");
    let mut more = heap.clone();
    more.put(4, 1024, 64, 9);
    assert_eq!(fact(&script, &more), "never-set slot");
    let mut older = heap.clone();
    older.put(3, 512, 200, 3);
    assert_eq!(fact(&script.clone().freed(3).allocated(3, 200), &older), "content-of-older slot, freed-for-new slot");
    let mut other = heap.clone();
    other.put(3, 512, 200, 77);
    assert_eq!(fact(&script, &other), "content-wrong slot recovery/contents");
}
