//! W3C Trace Context and Baggage: the trace that a request belongs to, and the state and baggage that come with it.

/// Longest `tracestate` that is passed on, in bytes.
const STATE_BYTES_MAX: usize = 512;
/// Most members of a `tracestate` (W3C Trace Context, 3.3.1.1).
const STATE_MEMBERS_MAX: usize = 32;
/// Longest `baggage` that is passed on, in bytes (W3C Baggage, limits).
const BAGGAGE_BYTES_MAX: usize = 8192;

/// Id of a trace.
pub type TraceId = [u8; 16];
/// Id of a span.
pub type SpanId = [u8; 8];

/// Reference to a span, the value of `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// Id of the trace.
    pub trace: TraceId,
    /// Id of the span.
    pub span: SpanId,
    /// True if the span is recorded (the flag `sampled`).
    pub is_sampled: bool,
}

impl TraceParent {
    /// Parses a `traceparent`; `None` when it is malformed. Later versions are accepted, and their additional parts ignored.
    pub fn parse(text: &str) -> Option<TraceParent> {
        let mut parts = text.split('-');
        let [version] = hex::<1>(parts.next()?)?;
        let (trace, span, [flags]) = (hex(parts.next()?)?, hex(parts.next()?)?, hex(parts.next()?)?);
        let is_formed = version != 0xff && (version != 0 || parts.next().is_none());
        let is_set = trace != TraceId::default() && span != SpanId::default();
        (is_formed && is_set).then_some(TraceParent { trace, span, is_sampled: flags & 1 == 1 })
    }

    /// Returns the value of `traceparent`.
    pub fn render(&self) -> String {
        let mut out = String::with_capacity(55);
        out.push_str("00-");
        write_hex(&mut out, &self.trace);
        out.push('-');
        write_hex(&mut out, &self.span);
        out.push_str(if self.is_sampled { "-01" } else { "-00" });
        out
    }

    /// Returns the id of the trace in hexadecimal.
    pub fn trace_id(&self) -> String {
        text(&self.trace)
    }

    /// Returns the id of the span in hexadecimal.
    pub fn span_id(&self) -> String {
        text(&self.span)
    }
}

/// Trace context of an incoming request. Malformed or too long values are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Incoming {
    /// Parent span of the request.
    pub parent: Option<TraceParent>,
    /// `tracestate`, as received.
    pub state: Option<String>,
    /// `baggage`, as received.
    pub baggage: Option<String>,
    /// Span of the HTTP request, to link to, when the message has its own parent span.
    pub link: Option<TraceParent>,
}

impl Incoming {
    /// Reads `traceparent`, `tracestate` and `baggage` from a message and from its HTTP headers. The message takes
    /// precedence.
    pub fn read(message: [Option<&str>; 3], headers: [Option<&str>; 3]) -> Incoming {
        let [told, state, baggage] = message;
        let [carried, carried_state, carried_baggage] = headers;
        let parse = |text: Option<&str>| text.and_then(TraceParent::parse);
        let bags = |text: Option<&str>| text.filter(|text| is_baggage(text)).map(str::to_owned);
        let states = |text: Option<&str>| text.filter(|text| is_state(text)).map(str::to_owned);
        if let Some(parent) = parse(told) {
            let (state, baggage, link) = (states(state), bags(baggage), parse(carried));
            return Incoming { parent: Some(parent), state, baggage, link };
        }
        // baggage of the message needs no trace; that of the headers is used only with their trace
        let parent = parse(carried);
        let state = parent.and_then(|_| states(carried_state));
        let baggage = bags(baggage).or_else(|| parent.and_then(|_| bags(carried_baggage)));
        Incoming { parent, state, baggage, link: None }
    }
}

fn is_state(text: &str) -> bool {
    let is_short = text.len() <= STATE_BYTES_MAX && text.split(',').count() <= STATE_MEMBERS_MAX;
    is_short && is_plain(text)
}

fn is_baggage(text: &str) -> bool {
    text.len() <= BAGGAGE_BYTES_MAX && is_plain(text)
}

/// Returns whether the text is a list of names and values, in characters that a header allows.
fn is_plain(text: &str) -> bool {
    text.contains('=') && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(out)
}

fn text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    write_hex(&mut out, bytes);
    out
}

fn write_hex(out: &mut String, bytes: &[u8]) {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    for byte in bytes {
        out.push(digit(byte >> 4));
        out.push(digit(byte & 15));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn only_a_well_formed_traceparent_is_one() {
        for (text, expected) in [
            (format!("00-{ID}-{SPAN}-01"), Some(true)),
            (format!("00-{ID}-{SPAN}-00"), Some(false)),
            (format!("00-{ID}-{SPAN}-02"), Some(false)),
            (format!("cc-{ID}-{SPAN}-03-later-parts"), Some(true)),
            (format!("00-{ID}-{SPAN}-01-more"), None),
            (format!("ff-{ID}-{SPAN}-01"), None),
            (format!("00-{}-{SPAN}-01", ID.to_uppercase()), None),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            (format!("00-{ID}-{}-01", "0".repeat(16)), None),
            (format!("00-{ID}-{SPAN}"), None),
            (format!("00-{ID}é-{SPAN}-01"), None),
            (format!("00-{ID}-{SPAN}-1"), None),
            (ID.to_owned(), None),
            (String::new(), None),
        ] {
            let parsed = TraceParent::parse(&text);
            assert_eq!(parsed.map(|parent| parent.is_sampled), expected, "{text}");
            let Some(parsed) = parsed else { continue };
            assert_eq!((parsed.trace_id().as_str(), parsed.span_id().as_str()), (ID, SPAN));
            assert_eq!(TraceParent::parse(&parsed.render()), Some(parsed));
        }
    }

    #[test]
    fn the_message_goes_before_its_headers() {
        let (here, there) = (format!("00-{ID}-{SPAN}-01"), format!("00-{}-{SPAN}-00", "ab".repeat(16)));
        let (here, there) = (here.as_str(), there.as_str());
        let both =
            Incoming::read([Some(here), Some("a=1"), Some("b=2")], [Some(there), Some("c=3"), Some("d=4")]);
        assert_eq!(both.parent, TraceParent::parse(here));
        assert_eq!(both.link, TraceParent::parse(there));
        assert_eq!((both.state.as_deref(), both.baggage.as_deref()), (Some("a=1"), Some("b=2")));

        let header =
            Incoming::read([Some("00-x"), Some("a=1"), None], [Some(there), Some("c=3"), Some("d=4")]);
        assert_eq!((header.parent, header.link), (TraceParent::parse(there), None));
        assert_eq!((header.state.as_deref(), header.baggage.as_deref()), (Some("c=3"), Some("d=4")));

        let none = Incoming::read([None, Some("a=1"), Some("b=2")], [None, Some("c=3"), Some("d=4")]);
        assert_eq!(none, Incoming { baggage: Some("b=2".to_owned()), ..Incoming::default() });
    }

    #[test]
    fn what_is_too_long_or_no_list_is_not_there() {
        let parent = format!("00-{ID}-{SPAN}-01");
        let read = |state: &str, baggage: &str| {
            let read = Incoming::read([Some(&parent), Some(state), Some(baggage)], [None; 3]);
            (read.state.is_some(), read.baggage.is_some())
        };
        assert_eq!(read("a=1", "b=2;c"), (true, true));
        assert_eq!(read(&format!("a={}", "x".repeat(510)), &format!("a={}", "x".repeat(8190))), (true, true));
        assert_eq!(
            read(&format!("a={}", "x".repeat(511)), &format!("a={}", "x".repeat(8191))),
            (false, false)
        );
        assert_eq!(read(&["a=1"; 33].join(","), "a=\n"), (false, false));
        assert_eq!(read("", "é=1"), (false, false));
    }
}
