// SPDX-License-Identifier: Apache-2.0
//! Evidence: what the recovery of one crash state shows a person, beside the rule that it breaks. Each piece is seen in a recovery of its own.

pub mod deaths;
mod reads;
mod stores;

use crate::base::config::Config;
use crate::findings::evidence::deaths::Died;
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
    /// Where a signal ends it, or where it hangs ([`deaths::place`]).
    pub died: Option<Died>,
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
        let ends = [RuleId::RecoveryCrashed, RuleId::RecoveryHung];
        let is_dying = violations.iter().any(|violation| ends.contains(&violation.broken()));
        let is_lost = lost_store(&StateRef { case, view, choices: state, position: 0 }).is_some();
        Self {
            read: reads::first(config, case, view, state),
            died: is_dying.then(|| deaths::place(config, case, view, state)).flatten(),
            stored: (!is_lost && !violations.is_empty()).then(|| stores::places(config, case, view, state)).flatten(),
        }
    }

    /// Of a state that was judged; nothing where it breaks no rule.
    pub fn of_judged(config: &Config, case: &mut HeapCase, state: (&View, &[Choice]), judgement: &Judgement) -> Self {
        match judgement.violations.as_slice() {
            [] => Self::default(),
            violations => Self::of(config, case, state, violations),
        }
    }
}
