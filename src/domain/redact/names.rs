//! Names of members, headers and settings whose values are secrets.

/// Longest part of a name that is classified, in bytes from its end.
pub(super) const NAME_BYTES_MAX: usize = 64;

/// Class of a name by what it says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKind {
    /// Name of an ordinary value.
    Harmless,
    /// Name of a secret.
    Secret,
    /// Name of a secret that, unquoted, is the rest of the line: headers with credentials, pass phrases.
    Line,
    /// Name of a secret only where the text is clearly data; elsewhere an ordinary word.
    Weak,
    /// Name of a session, whose value is a secret as a parameter of a URL only: elsewhere programs name their own sessions so.
    Parameter,
    /// Member whose value is itself a name, with its value in the next member: `{"name": "PASSWORD", "value": …}`.
    Pair,
}

/// Part of a name in which a stem counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Anywhere, unless the name goes on with one of [`ABOUT`].
    Inside,
    /// At the end of the name.
    End,
    /// The whole name only.
    Whole,
}

/// Stems of names, in lower case without separators, so that `api_key`, `apiKey` and `X-API-Key` are one.
const STEMS: &[(&str, Place, NameKind)] = &[
    ("password", Place::Inside, NameKind::Secret),
    ("passwd", Place::Inside, NameKind::Secret),
    ("passphrase", Place::Inside, NameKind::Line),
    ("pwd", Place::End, NameKind::Secret),
    ("secret", Place::Inside, NameKind::Secret),
    ("credential", Place::Inside, NameKind::Secret),
    ("privatekey", Place::Inside, NameKind::Secret),
    ("apikey", Place::Inside, NameKind::Secret),
    ("accesskey", Place::End, NameKind::Secret),
    ("secretkey", Place::End, NameKind::Secret),
    ("signingkey", Place::End, NameKind::Secret),
    ("encryptionkey", Place::End, NameKind::Secret),
    ("masterkey", Place::End, NameKind::Secret),
    ("sessionkey", Place::End, NameKind::Secret),
    ("sessionskey", Place::End, NameKind::Secret),
    ("bootstrapkey", Place::End, NameKind::Secret),
    ("accountkey", Place::End, NameKind::Secret),
    ("subscriptionkey", Place::End, NameKind::Secret),
    ("sharedkey", Place::End, NameKind::Secret),
    ("authkey", Place::End, NameKind::Secret),
    ("token", Place::End, NameKind::Secret),
    ("tokenvalue", Place::End, NameKind::Secret),
    ("accesstokens", Place::End, NameKind::Secret),
    ("refreshtokens", Place::End, NameKind::Secret),
    ("apitokens", Place::End, NameKind::Secret),
    ("authorization", Place::End, NameKind::Line),
    ("cookie", Place::End, NameKind::Line),
    ("cookies", Place::End, NameKind::Secret),
    ("amzsignature", Place::End, NameKind::Secret),
    ("googsignature", Place::End, NameKind::Secret),
    ("clientassertion", Place::End, NameKind::Secret),
    ("jwt", Place::End, NameKind::Weak),
    ("pass", Place::Whole, NameKind::Weak),
    ("auth", Place::Whole, NameKind::Weak),
    ("otp", Place::Whole, NameKind::Weak),
    ("cvv", Place::Whole, NameKind::Weak),
    ("cvc", Place::Whole, NameKind::Weak),
    ("sig", Place::Whole, NameKind::Weak),
    ("sessionid", Place::End, NameKind::Parameter),
    ("sessid", Place::End, NameKind::Parameter),
    ("session", Place::Whole, NameKind::Parameter),
    ("sid", Place::Whole, NameKind::Parameter),
    ("connectsid", Place::Whole, NameKind::Parameter),
    ("name", Place::Whole, NameKind::Pair),
    ("key", Place::Whole, NameKind::Pair),
    ("header", Place::Whole, NameKind::Pair),
];

/// Endings behind an [`Place::Inside`] stem that make the value something about a secret, not the secret:
/// `password_policy`, `secret_name`, `apiKeyId`.
const ABOUT: &[&str] = &[
    "id",
    "ids",
    "name",
    "names",
    "arn",
    "ref",
    "type",
    "policy",
    "length",
    "count",
    "version",
    "url",
    "uri",
    "at",
    "on",
    "expiry",
    "expires",
    "expired",
    "expiresin",
    "required",
    "enabled",
    "hint",
    "set",
    "reset",
    "field",
    "manager",
    "provider",
    "rotation",
    "path",
    "strength",
    "ary",
    "aries",
];

/// Words before `token` that make the name one of a position or of a language model's token, not of a secret.
const ORDINARY_TOKENS: &[&str] = &[
    "page",
    "next",
    "continuation",
    "sync",
    "progress",
    "cursor",
    "prev",
    "previous",
    "start",
    "stop",
    "resume",
    "eos",
    "bos",
    "pad",
    "unk",
    "mask",
    "sep",
    "cls",
    "special",
    "unexpected",
];

/// Reads the name at the end of `text`, of which at most the last [`NAME_BYTES_MAX`] bytes count. Returns its start
/// and its kind. An empty name is harmless.
pub(super) fn last_name(text: &[u8]) -> (usize, NameKind) {
    let mut set = 0;
    let mut length = 0;
    for byte in text.iter().rev().take(NAME_BYTES_MAX) {
        let of_byte = BYTE_SETS.get(usize::from(*byte)).copied().unwrap_or_default();
        if of_byte == 0 {
            break;
        }
        set |= of_byte;
        length += 1;
    }
    let (rest, name) = text.split_at(text.len() - length);
    (rest.len(), judge(name, set))
}

/// Classifies a name as written; `letters` is the set of its letters.
fn judge(name: &[u8], letters: u32) -> NameKind {
    // Every name in a text comes here and nearly all end here: no early exit, so that the comparisons are
    // made several at a time.
    if !STEM_LETTERS.iter().fold(false, |possible, stem| possible | (letters & stem == *stem)) {
        return NameKind::Harmless;
    }
    let mut buffer = [0_u8; NAME_BYTES_MAX];
    let plain = name.iter().rev().filter(|byte| !is_separator(**byte));
    let length =
        buffer.iter_mut().rev().zip(plain).map(|(slot, byte)| *slot = byte.to_ascii_lowercase()).count();
    let (_, plain) = buffer.split_at(NAME_BYTES_MAX - length);
    let kind = judge_plain(plain, letters);
    // `DB_PASS`, but not `bypass`.
    let pass = kind == NameKind::Harmless
        && plain.ends_with(b"pass")
        && name.len().checked_sub(5).and_then(|at| name.get(at)).is_some_and(|byte| is_separator(*byte));
    if pass { NameKind::Weak } else { kind }
}

const fn is_separator(byte: u8) -> bool {
    matches!(byte, b'_' | b'-' | b'.')
}

/// Classifies a name in lower case without separators; `letters` is the set of its letters.
fn judge_plain(name: &[u8], letters: u32) -> NameKind {
    for (stem, kind) in STEM_LETTERS.iter().zip(STEMS) {
        if letters & stem != *stem {
            continue;
        }
        let (stem, place, kind) = kind;
        if stands(name, stem.as_bytes(), *place) && !(*stem == "token" && is_ordinary_token(name)) {
            return *kind;
        }
    }
    NameKind::Harmless
}

fn stands(name: &[u8], stem: &[u8], place: Place) -> bool {
    match place {
        Place::Whole => name == stem,
        Place::End => name.ends_with(stem),
        Place::Inside => {
            let Some(at) = name.windows(stem.len()).rposition(|part| part == stem) else { return false };
            let rest = name.get(at + stem.len()..).unwrap_or_default();
            !ABOUT.iter().any(|about| rest.ends_with(about.as_bytes()))
        }
    }
}

fn is_ordinary_token(name: &[u8]) -> bool {
    let before = name.strip_suffix(b"token").unwrap_or(name);
    ORDINARY_TOKENS.iter().any(|word| before.ends_with(word.as_bytes()))
}

/// Set of letters of each stem: most names lack a letter and need no comparison.
const STEM_LETTERS: [u32; STEMS.len()] = {
    let mut sets = [0; STEMS.len()];
    let mut left: &mut [u32] = &mut sets;
    let mut stems = STEMS;
    while let ([(stem, _, _), more @ ..], [set, rest @ ..]) = (stems, left) {
        let mut bytes = stem.as_bytes();
        while let [byte, tail @ ..] = bytes {
            *set |= letter(*byte);
            bytes = tail;
        }
        (stems, left) = (more, rest);
    }
    sets
};

/// Bits that each byte adds to the set of a name's letters; 0 for bytes that are not part of names.
const BYTE_SETS: [u32; 256] = {
    const NAME_BYTE: u32 = 1 << 31;
    let mut sets = [0; 256];
    let mut left: &mut [u32] = &mut sets;
    let mut byte = 0_u8;
    while let [set, rest @ ..] = left {
        if byte.is_ascii_alphanumeric() || is_separator(byte) {
            *set = NAME_BYTE | letter(byte.to_ascii_lowercase());
        }
        byte = byte.wrapping_add(1);
        left = rest;
    }
    sets
};

const fn letter(byte: u8) -> u32 {
    if byte.is_ascii_lowercase() { 1 << (byte - b'a') } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_names() {
        for (kind, names) in [
            (
                NameKind::Secret,
                "password Password db_password passwordHash PASSWORD2 new-password pwd client_secret clientSecret \
                 secret secrets secret_value token access_token id_token x-auth-token PRIVATE-TOKEN csrf_token api_key \
                 apikey X-API-Key apiKeys private_key aws_secret_access_key credentials sessions.key \
                 X-Amz-Security-Token X-Amz-Signature AccountKey auth_key bootstrap_key",
            ),
            (NameKind::Line, "authorization Authorization Proxy-Authorization Cookie Set-Cookie passphrase"),
            (NameKind::Weak, "pass DB_PASS smtp.pass auth otp cvv sig jwt"),
            (
                NameKind::Parameter,
                "sid SID PHPSESSID jsessionid ASP.NET_SessionId session session_id sessionId connect.sid",
            ),
            (NameKind::Pair, "name key header"),
            (
                NameKind::Harmless,
                "max_tokens token_count total_tokens next_page_token pageToken progressToken continuationToken \
                 nextToken tokens tokenizer password_policy secret_name secretArn secretary api_key_id keys id \
                 monkey bypass description sessions address_id business_id pin author x 1 tokenType password_reset",
            ),
        ] {
            for name in names.split_whitespace() {
                assert_eq!(last_name(format!("\"{name}").as_bytes()), (1, kind), "{name}");
            }
        }
    }

    #[test]
    fn judges_the_end_of_long_names() {
        let long = format!("{}_password", "x".repeat(10_000));
        assert_eq!(last_name(long.as_bytes()), (long.len() - NAME_BYTES_MAX, NameKind::Secret));
    }
}
