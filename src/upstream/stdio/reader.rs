//! Reads what a program writes. Everything on it is hostile: lines without end, floods, nonsense.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::{Instant, sleep};

use super::journal::{LINE_BYTES_MAX, ServerLog};
use super::lines::{Edges, Line, Lines};
use super::pace::Pace;
use super::wire::Wire;
use crate::upstream::error::{Kind, UpstreamError};
use crate::upstream::jsonrpc::{self, Message};
use crate::upstream::shares::{Room, Share};

/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;
/// What is read of messages that nobody asked for without slowing the program down, in bytes; and per second.
const CHATTER_BYTES: u32 = 256 * 1024;
/// The same for standard error, of which most is left out.
const STDERR_BYTES: u32 = 4 * 1024 * 1024;

/// Reads standard output to its end.
pub(super) struct Reader {
    pub(super) wire: Arc<Wire>,
    pub(super) log: Arc<ServerLog>,
    pub(super) share: Share,
}

impl Reader {
    pub(super) async fn read(self, mut output: ChildStdout) {
        let mut lines = Lines::default();
        let mut pace = Pace::new(CHATTER_BYTES, CHATTER_BYTES);
        let mut room = self.share.room();
        let mut is_crowded = false;
        while more(&mut output, &mut lines.input).await {
            if !is_crowded && room.grow(lines.input.len()).await.is_err() {
                is_crowded = true;
            }
            if is_crowded {
                lines.give_up();
            }
            let mut chatter = 0;
            while let Some(line) = lines.next(self.wire.bytes_max()) {
                let fault = if is_crowded { Kind::Crowded } else { Kind::TooLarge };
                is_crowded = false;
                let room = std::mem::replace(&mut room, self.share.room());
                chatter += self.take(line, room, fault);
            }
            let pause = pace.take(chatter, Instant::now());
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
    }

    /// Takes a line; gives how much of it nobody asked for.
    fn take(&self, line: Line, room: Room, fault: Kind) -> usize {
        match line {
            Line::Whole(line) => self.message(&line, room),
            Line::Long(edges) if self.too_long(&edges, fault) => 0,
            Line::Long(edges) => edges.len,
        }
    }

    fn message(&self, line: &Bytes, room: Room) -> usize {
        if line.trim_ascii().is_empty() {
            return line.len();
        }
        let Ok(message) = Message::read(line) else {
            self.log.garbage("something that is no message", line);
            return line.len();
        };
        match (message.method.as_deref(), message.id) {
            (None, id) => {
                let waiter = id.and_then(|id| Some((jsonrpc::number(id)?, id)));
                let waiter = waiter.and_then(|(id, _)| Some((id, self.wire.take(id)?)));
                // an answer that nobody waits for any more
                let Some((id, waiter)) = waiter else { return line.len() };
                let answer = match line.len() > waiter.bytes_max {
                    true => Err(UpstreamError::sent(Kind::TooLarge, "")),
                    false if room.is_held() => jsonrpc::read_answer(&room.keep(line.clone()), id),
                    false => message.answer(line, id),
                };
                drop(waiter.answer.send(answer));
                0
            }
            (Some("ping"), Some(id)) => {
                self.wire.tell(&jsonrpc::pong(id));
                line.len()
            }
            (Some(_), Some(id)) => {
                self.wire.tell(&jsonrpc::unsupported(id));
                line.len()
            }
            (Some("notifications/progress"), None) => {
                let token =
                    message.params.and_then(|params| Some((jsonrpc::progress_token(params)?, params)));
                if let Some((token, params)) = token {
                    self.wire.progress(token, jsonrpc::slice(line, params));
                }
                line.len()
            }
            (Some(_), None) => line.len(),
        }
    }

    /// Somebody may wait for what was not kept: its id is near one of its ends. Gives whether somebody did.
    fn too_long(&self, edges: &Edges, fault: Kind) -> bool {
        self.log.garbage(&format!("a line of {} bytes, which is too long,", edges.len), b"");
        let waiter = id_of(edges).and_then(|id| self.wire.take(id));
        waiter.is_some_and(|waiter| waiter.answer.send(Err(UpstreamError::sent(fault, ""))).is_ok())
    }
}

/// The id of an answer, by its beginning or its end as the common libraries write them.
fn id_of(edges: &Edges) -> Option<u64> {
    let digits = |text: &str| -> Option<u64> {
        let text = text.trim_start();
        let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
        text.get(..end)?.parse().ok()
    };
    let head = String::from_utf8_lossy(&edges.head);
    let before_result = head.split("\"result\"").next().unwrap_or_default();
    let tail = String::from_utf8_lossy(&edges.tail);
    let last = tail.trim_end().rsplit_once("\"id\":").map(|(_, rest)| rest);
    let at_end = last.filter(|rest| {
        rest.trim_start_matches([' ', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) == "}"
    });
    before_result.split_once("\"id\":").and_then(|(_, rest)| digits(rest)).or_else(|| at_end.and_then(digits))
}

/// Reads standard error to its end, into the server's log.
pub(super) async fn log_errors(mut errors: ChildStderr, log: Arc<ServerLog>) {
    let mut lines = Lines::default();
    let mut pace = Pace::new(STDERR_BYTES, STDERR_BYTES);
    loop {
        let before = lines.input.len();
        if !more(&mut errors, &mut lines.input).await {
            break;
        }
        let read = lines.input.len().saturating_sub(before);
        while let Some(line) = lines.next(LINE_BYTES_MAX) {
            log.stderr(shown(&line));
        }
        let pause = pace.take(read, Instant::now());
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
    if let Some(line) = lines.rest() {
        log.stderr(shown(&line));
    }
}

fn shown(line: &Line) -> &[u8] {
    match line {
        Line::Whole(line) => line,
        Line::Long(edges) => &edges.head,
    }
}

/// Reads some more; `false` at the end.
async fn more(from: &mut (impl AsyncRead + Unpin), into: &mut BytesMut) -> bool {
    if into.capacity() - into.len() < READ_BYTES / 4 {
        into.reserve(READ_BYTES);
    }
    let mut limited = into.limit(READ_BYTES);
    matches!(from.read_buf(&mut limited).await, Ok(read) if read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_answer_that_was_not_kept() {
        let edges = |head: &str, tail: &str| Edges { head: head.into(), tail: tail.into(), len: 9_999_999 };
        let table = [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":"x"#, r#"x"}}"#, Some(7)),
            (r#"{"id": 12 ,"jsonrpc":"2.0","result":{"#, "}}", Some(12)),
            (r#"{"result":{"id":5,"x":"#, r#""},"jsonrpc":"2.0","id":8}"#, Some(8)),
            (r#"{"result":{"id":5,"x":"#, r#""},"jsonrpc":"2.0","id": 81 }"#, Some(81)),
            (r#"{"result":{"id":5,"x":"#, r#","y":{"id":3}}}"#, None),
            ("garbage", "garbage", None),
        ];
        for (head, tail, want) in table {
            assert_eq!(id_of(&edges(head, tail)), want, "{head} … {tail}");
        }
    }
}
