package roottest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// plotWidth and plotHeight are of a panel, in pixels; plotParts is how many points a line has.
const plotWidth, plotHeight, plotParts = 720, 160, 60

// drawSoak is an SVG of two panels over time: the 99th percentile of all calls, and the memory of
// chatd's processes.
func drawSoak(took []tookCall, used []memorySample, last time.Duration) string {
	var latency [plotParts][]time.Duration
	part := func(at time.Duration) int { return min(max(int(at*plotParts/last), 0), plotParts-1) }
	for _, c := range took {
		latency[part(c.at)] = append(latency[part(c.at)], c.took)
	}
	var p99, memory [plotParts]float64
	for i, all := range latency {
		if slices.Sort(all); len(all) > 0 {
			p99[i] = float64(all[len(all)*99/100].Microseconds()) / 1000
		}
	}
	for _, m := range used {
		memory[part(m.at)] = float64(m.pss) / 1024
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `+
		`font-family="sans-serif" font-size="12">`+"\n", plotWidth+100, 2*plotHeight+120)
	drawPanel(&b, 20, "99th percentile of all calls, ms", p99[:], last)
	drawPanel(&b, plotHeight+70, "memory of chatd's processes (PSS), MiB", memory[:], last)
	b.WriteString("</svg>\n")
	return b.String()
}

// drawPanel draws one line with its axes. A part without a value is left out.
func drawPanel(b *strings.Builder, top int, title string, values []float64, last time.Duration) {
	highest := max(slices.Max(values), 1)
	var points []string
	for i, v := range values {
		if v > 0 {
			points = append(points, fmt.Sprintf("%d,%d", 60+i*plotWidth/len(values),
				top+plotHeight-int(v/highest*float64(plotHeight))))
		}
	}
	fmt.Fprintf(b, `<text x="60" y="%d">%s</text>`+"\n", top-5, title)
	fmt.Fprintf(b, `<path d="M60 %d V%d H%d" fill="none" stroke="black"/>`+"\n",
		top, top+plotHeight, 60+plotWidth)
	fmt.Fprintf(b, `<text x="55" y="%d" text-anchor="end">%.0f</text>`+"\n", top+10, highest)
	fmt.Fprintf(b, `<text x="55" y="%d" text-anchor="end">0</text>`+"\n", top+plotHeight)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
		60+plotWidth, top+plotHeight+15, last.Round(time.Second))
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="steelblue"/>`+"\n",
		strings.Join(points, " "))
}
