//! Names that are asked for before anything is: what the name server of a session may tell.

use exeat_policy::host::Host;
use exeat_policy::target::Authority;

use super::refusal::{Refusal, Subject};
use super::tunnel::judge;
use super::{Caller, Gate};
use crate::audit::AskedFor;

impl Gate {
    /// Whether something at `host` may be permitted at one of `ports`. If nothing is, that is taken down, for the first
    /// of them; what is permitted is taken down when it is asked for.
    pub(crate) fn may_name(&self, caller: &Caller, host: &Host, ports: &[u16]) -> bool {
        let snapshot = self.current.get();
        let mut refused = None;
        for port in ports {
            let judged = judge(&snapshot, &Authority::new(host.clone(), *port));
            if judged.leave.is_some() {
                return true;
            }
            refused.get_or_insert(judged);
        }
        if let Some(judged) = refused {
            let subject = Subject {
                rule: judged.rule,
                layer: judged.layer,
                target: AskedFor::Name(host),
                ..Subject::unjudged(caller, &snapshot, "QUERY", host)
            };
            self.turned_away(&subject, &Refusal::from(judged.reason));
        }
        false
    }
}
