//! What there is: the database, the relays, the receiver, and what is on its way between them.

/// Messages, all under one key, in the order of their `seq`.
pub(crate) const MESSAGES: usize = 2;

/// Relays.
pub(crate) const RELAYS: usize = 2;

/// An attempt that fails so often makes its message dead.
pub(crate) const TRIES: u8 = 2;

/// Which rules hold, and how much may go wrong. A rule that is off must lead to a violation, or it would not be needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// A claim takes nothing of a key that is leased, and the earliest live row first.
    pub(crate) head: bool,
    /// A relay that could not renew its lease in time starts nothing.
    pub(crate) lifeline: bool,
    /// A claim of a session that was given up does nothing.
    pub(crate) session: bool,
    /// What is no success counts under its lease only.
    pub(crate) fence: bool,
    /// A success counts for the life of the message that was sent, not for a later one.
    pub(crate) generation: bool,
    /// If one of a key fails, what is behind it in the lease is given back.
    pub(crate) chain: bool,
    /// So many crashes, stalls and lost answers of all kinds together.
    pub(crate) faults: u8,
    /// So many replays of dead messages.
    pub(crate) replays: u8,
}

impl Rules {
    pub(crate) const ALL: Rules = Rules {
        head: true,
        lifeline: true,
        session: true,
        fence: true,
        generation: true,
        chain: true,
        faults: 2,
        replays: 0,
    };
}

/// A row of `outbox.messages`, or where it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Row {
    /// Its transaction is open.
    Uncommitted,
    Pending {
        tries: u8,
        generation: u8,
    },
    Delivered {
        generation: u8,
    },
    Dead {
        generation: u8,
    },
}

/// A row of `outbox.leases`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) number: u8,
    pub(crate) relay: usize,
    pub(crate) life: u8,
    pub(crate) ids: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    Waiting,
    Sent,
    Accepted,
    Failed,
    GivenBack,
}

/// A message that a relay has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) lease: u8,
    pub(crate) id: usize,
    pub(crate) generation: u8,
    pub(crate) stage: Stage,
}

/// A relay's process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Relay {
    pub(crate) up: bool,
    /// Which registration it believes to have.
    pub(crate) life: u8,
    pub(crate) session: u8,
    /// Its lease time is over, as far as it knows.
    pub(crate) late: bool,
    /// A claim is on its way.
    pub(crate) claiming: bool,
    /// A claim of unknown end.
    pub(crate) doubt: bool,
    pub(crate) held: Vec<Held>,
}

/// A row of `outbox.relays`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Registered {
    pub(crate) life: u8,
    pub(crate) session: u8,
}

/// On its way to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClaimSent {
    pub(crate) relay: usize,
    pub(crate) life: u8,
    pub(crate) session: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SettleSent {
    pub(crate) relay: usize,
    pub(crate) life: u8,
    pub(crate) lease: u8,
    pub(crate) id: usize,
    pub(crate) generation: u8,
    pub(crate) verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Delivered,
    Retry,
    Release,
}

/// On its way to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) relay: usize,
    pub(crate) life: u8,
    pub(crate) lease: u8,
    pub(crate) id: usize,
    pub(crate) generation: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) rows: [Row; MESSAGES],
    pub(crate) registered: [Option<Registered>; RELAYS],
    pub(crate) relays: [Relay; RELAYS],
    pub(crate) leases: Vec<Lease>,
    pub(crate) next_lease: u8,
    pub(crate) claims: Vec<ClaimSent>,
    pub(crate) settles: Vec<SettleSent>,
    pub(crate) requests: Vec<Request>,
    /// What the receiver accepted, in order: (message, generation), each once.
    pub(crate) accepted: Vec<(usize, u8)>,
    /// It was accepted again.
    pub(crate) repeated: bool,
    /// Died at some time: what follows may go on (policy `continue`).
    pub(crate) died: [bool; MESSAGES],
    /// Requests that were made for it in this life.
    pub(crate) sent: [u8; MESSAGES],
    /// Died before it had its tries.
    pub(crate) cheated: bool,
    /// A request was started by a relay that had the lease no more.
    pub(crate) stolen: bool,
    /// A late success removed a row that was replayed since.
    pub(crate) eaten: bool,
    pub(crate) faults: u8,
    pub(crate) replays: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Commit(usize),
    /// The relay asks for so many.
    Claim(usize),
    /// A claim arrives and takes so many; the answer is heard, or not.
    Take {
        claim: usize,
        most: usize,
        heard: bool,
    },
    /// The relay waits no longer for its claim.
    GiveUpClaim(usize),
    Recover(usize),
    Start {
        relay: usize,
        held: usize,
    },
    /// A request arrives; it is accepted or not, and the answer is heard or not.
    Arrive {
        request: usize,
        accept: bool,
        heard: bool,
    },
    /// The relay waits no longer for an answer; the request is still on its way.
    GiveUpRequest {
        relay: usize,
        held: usize,
    },
    Settle {
        relay: usize,
        held: usize,
    },
    /// A settle arrives; it may come once more; the relay hears of it, or not.
    Apply {
        settle: usize,
        again: bool,
        heard: bool,
    },
    Crash(usize),
    /// The relay can't renew, and its lease time passes.
    Outage(usize),
    /// It can again, and nobody has reaped it.
    Renew(usize),
    /// Another relay saw no beat for a whole lease time.
    Reap(usize),
    /// The relay finds that it was reaped, or starts again.
    Register(usize),
    Replay(usize),
}

impl Request {
    /// For a message that a relay has.
    pub(crate) fn of(relay: usize, life: u8, held: Held) -> Request {
        let Held {
            lease,
            id,
            generation,
            ..
        } = held;
        Request {
            relay,
            life,
            lease,
            id,
            generation,
        }
    }
}

impl State {
    pub(crate) fn lease_of(&self, id: usize) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.ids.contains(&id))
    }

    /// Whether a relay's registration is the one in the database.
    pub(crate) fn is_registered(&self, relay: usize) -> bool {
        self.registered[relay].is_some_and(|row| row.life == self.relays[relay].life)
    }

    pub(crate) fn claim_is_under_way(&self, relay: usize) -> bool {
        let Relay { life, session, .. } = self.relays[relay];
        self.claims.contains(&ClaimSent {
            relay,
            life,
            session,
        })
    }

    pub(crate) fn request_is_under_way(&self, relay: usize, held: Held) -> bool {
        let life = self.relays[relay].life;
        self.requests.contains(&Request::of(relay, life, held))
    }

    /// What a claim may take: the earliest pending row of the key, and what follows.
    pub(crate) fn claimable(&self, rules: Rules, most: usize) -> Vec<usize> {
        let pending = |id: &usize| matches!(self.rows[*id], Row::Pending { .. });
        let mut ids: Vec<usize> = (0..MESSAGES).filter(pending).collect();
        if rules.head {
            if ids.iter().any(|id| self.lease_of(*id).is_some()) {
                return Vec::new();
            }
        } else {
            ids.retain(|id| self.lease_of(*id).is_none());
        }
        ids.truncate(most);
        ids
    }

    pub(crate) fn drop_from_lease(
        &mut self,
        relay: usize,
        life: u8,
        number: u8,
        id: usize,
    ) -> bool {
        let mut was_there = false;
        for lease in &mut self.leases {
            if lease.number == number && lease.relay == relay && lease.life == life {
                let before = lease.ids.len();
                lease.ids.retain(|one| *one != id);
                was_there = lease.ids.len() < before;
            }
        }
        self.leases.retain(|lease| !lease.ids.is_empty());
        was_there
    }

    pub(crate) fn apply(&mut self, rules: Rules, settle: SettleSent) {
        let SettleSent {
            relay,
            life,
            lease,
            id,
            generation,
            verdict,
        } = settle;
        let fenced = self.drop_from_lease(relay, life, lease, id);
        let Row::Pending {
            tries,
            generation: current,
        } = self.rows[id]
        else {
            return;
        };
        let same = generation == current;
        match verdict {
            Verdict::Delivered if same || !rules.generation => {
                self.eaten |= !same;
                self.rows[id] = Row::Delivered {
                    generation: current,
                };
            }
            Verdict::Retry if (fenced || !rules.fence) && same => {
                self.rows[id] = if tries + 1 >= TRIES {
                    self.died[id] = true;
                    self.cheated |= self.sent[id] < TRIES;
                    Row::Dead { generation }
                } else {
                    Row::Pending {
                        tries: tries + 1,
                        generation,
                    }
                };
            }
            Verdict::Delivered | Verdict::Retry | Verdict::Release => {}
        }
    }

    /// The relay drops what it holds and registers under a new life.
    pub(crate) fn register(&mut self, relay: usize) {
        let one = &mut self.relays[relay];
        one.life += 1;
        *one = Relay {
            up: true,
            life: one.life,
            session: 0,
            late: false,
            claiming: false,
            doubt: false,
            held: Vec::new(),
        };
        self.registered[relay] = Some(Registered {
            life: one.life,
            session: 0,
        });
    }
}
