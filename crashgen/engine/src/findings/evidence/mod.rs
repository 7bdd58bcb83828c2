// SPDX-License-Identifier: Apache-2.0
//! Evidence: what the recovery of one crash state shows a person, beside the rule that it breaks. Each piece is seen in a recovery of its own.

pub mod deaths;
mod reads;
mod stores;

use crate::base::config::Config;
use crate::findings::evidence::deaths::End;
use crate::heap::case::HeapCase;
use crate::heap::state::{StateRef, lost_store};
use crashgen::model::{Choice, View};
use crashgen::symbols::Symbol;
use oracle::{Judgement, RuleId, Violation};

/// No verdict depends on it. A piece is none where it was not asked for, where it cannot be seen, and where the recovery for it fails.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Where recovery first reads what the state lacks ([`reads::first`]).
    pub read: Option<Symbol>,
    /// How it ends, if it does not come to its end ([`deaths::end`]).
    pub end: End,
    /// Where recovery stores, if the state breaks a rule and has every store of its generation ([`stores::places`]).
    pub stored: Option<Vec<Symbol>>,
}

impl Evidence {
    /// Of a state that breaks these rules.
    pub fn of(
        config: &Config,
        case: &mut HeapCase,
        (view, state): (&View, &[Choice]),
        violations: &[Violation],
    ) -> Self {
        let is_dying = violations.iter().any(is_end);
        let is_lost = lost_store(&StateRef { case, view, choices: state, position: 0 }).is_some();
        Self {
            read: reads::first(config, case, view, state),
            end: if is_dying { deaths::end(config, case, view, state) } else { End::default() },
            stored: (!is_lost && !violations.is_empty()).then(|| stores::places(config, case, view, state)).flatten(),
        }
    }

    /// What is said of the violation, with what the target printed before that ended it.
    pub fn message(&self, violation: &Violation) -> String {
        let printed = if is_end(violation) { self.end.printed_tail() } else { String::new() };
        format!("{}{printed}", violation.message)
    }

    /// Of a state that was judged; nothing where it breaks no rule.
    pub fn of_judged(config: &Config, case: &mut HeapCase, state: (&View, &[Choice]), judgement: &Judgement) -> Self {
        match judgement.violations.as_slice() {
            [] => Self::default(),
            violations => Self::of(config, case, state, violations),
        }
    }
}

/// Whether a life did not come to its end.
fn is_end(violation: &Violation) -> bool {
    [RuleId::RecoveryCrashed, RuleId::RecoveryHung].contains(&violation.broken())
}
