package wrapper

import "strings"

// lettersValued are the letters that a value follows, by program, also within their word.
var lettersValued = map[string]string{
	"curl": "AbcCdDeEFHKmoPQrtTuUwxXyYz", "wget": "OoaeiBtTwQPUlADRIXn",
	"git": "cCboujm", "pip": "ircftedb", "pip3": "ircftedb",
	"ssh": "BbcDEeFIiJLlmOoPpQRSWw", "scp": "cDFiJloPSX", "sftp": "BbcDFiJlOoPRSsX",
}

// elsewhere are the options of curl by which it connects to what its URLs do not say.
var elsewhere = []string{"--connect-to", "--resolve", "--unix-socket", "--abstract-unix-socket"}

// longValued are the options, by program, that a value follows which is no place to connect to, or
// one that [shim.proxyFor] and [shim.registries] read.
var longValued = map[string][]string{
	"curl": strings.Fields(`
		--abstract-unix-socket --alt-svc --aws-sigv4 --cacert --capath --cert --cert-type
		--ciphers --config --connect-timeout --connect-to --continue-at --cookie --cookie-jar
		--create-file-mode --crlfile --curves --data --data-ascii --data-binary --data-raw
		--data-urlencode --delegation --dns-interface --dns-ipv4-addr --dns-ipv6-addr
		--dns-servers --doh-url --dump-header --egd-file --engine --etag-compare --etag-save
		--expect100-timeout --form --form-string --ftp-account --ftp-alternative-to-user
		--ftp-method --ftp-port --ftp-ssl-ccc-mode --happy-eyeballs-timeout-ms --header
		--hostpubmd5 --hostpubsha256 --hsts --interface --ip-tos --json --keepalive-time --key
		--key-type --krb --libcurl --limit-rate --local-port --login-options --mail-auth
		--mail-from --mail-rcpt --max-filesize --max-redirs --max-time --netrc-file --noproxy
		--oauth2-bearer --output --output-dir --parallel-max --pass --pinnedpubkey --preproxy
		--proto --proto-default --proto-redir --proxy --proxy-cacert --proxy-capath --proxy-cert
		--proxy-cert-type --proxy-ciphers --proxy-crlfile --proxy-header --proxy-key
		--proxy-key-type --proxy-pass --proxy-pinnedpubkey --proxy-service-name
		--proxy-tls13-ciphers --proxy-tlsauthtype --proxy-tlspassword --proxy-tlsuser --proxy-user
		--proxy1.0 --pubkey --quote --random-file --range --rate --referer --request
		--request-target --resolve --retry --retry-delay --retry-max-time --sasl-authzid
		--service-name --socks4 --socks4a --socks5 --socks5-gssapi-service --socks5-hostname
		--speed-limit --speed-time --stderr --telnet-option --tftp-blksize --time-cond --tls-max
		--tls13-ciphers --tlsauthtype --tlspassword --tlsuser --trace --trace-ascii --unix-socket
		--upload-file --url-query --user --user-agent --variable --vlan-priority --write-out`),
	"wget": strings.Fields(`
		--output-document --output-file --append-output --header --post-data --post-file
		--body-data --body-file --method --user-agent --referer --user --password --http-user
		--http-password --proxy-user --proxy-password --execute --directory-prefix --tries
		--timeout --dns-timeout --connect-timeout --read-timeout --wait --waitretry --limit-rate
		--quota --load-cookies --save-cookies --ca-certificate --ca-directory --certificate
		--private-key --accept --reject --level --domains --exclude-domains --input-file --base
		--config --compression --cut-dirs --default-page --secure-protocol`),
	"npm": registryValued, "pip": registryValued, "pip3": registryValued,
}

var registryValued = strings.Fields(`--proxy --https-proxy --noproxy --requirement --constraint
	--target --prefix --root`)
