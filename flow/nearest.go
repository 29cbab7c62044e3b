package flow

import "strings"

// Nearest finds the word most similar to name, for "did you mean": the one that
// the fewest letters turn it into, or the first that it is the beginning of. It
// returns "" where none is similar: where more than a third of the letters, and
// more than two, would have to change.
func Nearest(name string, words []string) string {
	best, least := "", min(max(2, len(name)/3), len(name)/2)+1 // of a short word half its letters have to be right
	for _, word := range words {
		if d := distance(name, word); d < least {
			best, least = word, d
		}
	}
	const telling = 3 // letters that a beginning must have
	for _, word := range words {
		if best == "" && len(name) >= telling && strings.HasPrefix(word, name) {
			best = word
		}
	}
	return best
}

// distance is Levenshtein's: how many letters to insert, delete or replace.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j := range y {
			replace := diagonal
			if x[i] != y[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(y)]
}
