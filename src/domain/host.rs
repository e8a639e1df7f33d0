//! Hosts of requests and of settings.

/// Returns whether a request's host is the configured one, in any case of letters. Without a port, that one matches any port.
pub fn is_host(configured: &str, host: &str) -> bool {
    configured.eq_ignore_ascii_case(host) || configured.eq_ignore_ascii_case(without_port(host))
}

/// Returns whether a host may be that of a request, by the allowed ones: `*` allows any.
pub fn is_allowed(allowed: &[String], host: &str) -> bool {
    allowed.iter().any(|allowed| allowed == "*" || is_host(allowed, host))
}

/// Returns whether requests may name a configured host, with or without its port.
pub fn may_be_named(allowed: &[String], configured: &str) -> bool {
    let named = |allowed: &String| configured.eq_ignore_ascii_case(without_port(allowed));
    is_allowed(allowed, configured) || allowed.iter().any(named)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok() =>
        {
            name
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_port_matches_any() {
        let allowed = ["gw.example".to_owned(), "b.example:8443".to_owned(), "[::1]".to_owned()];
        for (host, is_one, is_named) in [
            ("gw.example", true, true),
            ("GW.example:8080", true, true),
            ("gw.example:", false, false),
            ("gw.example:99999", false, false),
            ("b.example:8443", true, true),
            ("b.example:9", false, false),
            // requests name it with its port
            ("b.example", false, true),
            ("[::1]:80", true, true),
            ("x.gw.example", false, false),
            ("", false, false),
        ] {
            assert_eq!(is_allowed(&allowed, host), is_one, "{host}");
            assert_eq!(may_be_named(&allowed, host), is_named, "{host}");
        }
        assert!(is_allowed(&["*".to_owned()], "any.example:1"));
    }
}
