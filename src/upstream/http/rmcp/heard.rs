//! Changes announced on the stream of a session, kept until they are taken.

use std::sync::atomic::{AtomicU8, Ordering};

use rmcp::model::ServerNotification;
use tokio::sync::Notify;

use crate::upstream::protocol::offers::Announced;

/// Kinds of changes that a server may announce, in the order in which they are taken.
const ALL: [Announced; 3] = [Announced::Tools, Announced::Prompts, Announced::Resources];

/// Announced changes that were not taken yet, at most one of each kind: a change announced twice is listed once.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Announcement {
    /// Set of kinds, one bit for each.
    bits: AtomicU8,
    told: Notify,
}

impl Announcement {
    /// Records an announced change.
    pub(super) fn note(&self, what: Announced) {
        self.bits.fetch_or(bit(what), Ordering::SeqCst);
        self.told.notify_one();
    }

    /// Waits for an announced change, and takes it.
    pub(super) async fn next(&self) -> Announced {
        loop {
            if let Some(what) = self.take() {
                return what;
            }
            // an announcement in between has left its permit
            self.told.notified().await;
        }
    }

    fn take(&self) -> Option<Announced> {
        ALL.into_iter().find(|what| self.bits.fetch_and(!bit(*what), Ordering::SeqCst) & bit(*what) != 0)
    }
}

fn bit(what: Announced) -> u8 {
    match what {
        Announced::Tools => 1,
        Announced::Prompts => 2,
        Announced::Resources => 4,
    }
}

/// Returns the kind whose change a notification announces; `None` if it announces none.
pub(super) fn announced(notification: &ServerNotification) -> Option<Announced> {
    match notification {
        ServerNotification::ToolListChangedNotification(_) => Some(Announced::Tools),
        ServerNotification::PromptListChangedNotification(_) => Some(Announced::Prompts),
        ServerNotification::ResourceListChangedNotification(_) => Some(Announced::Resources),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn each_kind_is_taken_once() {
        let heard = Announcement::default();
        assert_eq!(heard.next().now_or_never(), None);
        for what in [Announced::Resources, Announced::Tools, Announced::Resources] {
            heard.note(what);
        }
        assert_eq!(heard.next().now_or_never(), Some(Announced::Tools));
        assert_eq!(heard.next().now_or_never(), Some(Announced::Resources));
        assert_eq!(heard.next().now_or_never(), None);
        heard.note(Announced::Prompts);
        assert_eq!(heard.next().now_or_never(), Some(Announced::Prompts));
    }
}
